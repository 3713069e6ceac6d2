//! `mmc-lab dw`: for bringing up a board with the DesignWare host.

pub mod bench;
pub mod regs;

use mmc_dw_hsdk::clock::divisor;
use mmc_dw_hsdk::timeout::{MARGIN, data_timeout, millis_up, response_timeout};
use mmc_time::Duration;
use std::fmt::Write as _;
use std::process::ExitCode;

use crate::units::format_time;

/// For bringing up a board with the DesignWare host
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// What to work out
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum What {
    /// What a value of TMOUT means in time
    Timeout(Timeout),
    /// Decodes a register dump from the standard input
    Regs(regs::Args),
    /// Register accesses, interrupts and the share of bus time, as `mmc-lab bench dw`
    Bench(bench::Args),
}

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:
  mmc-lab dw timeout --bus 50M --div 0 --tmout 0xffffffff

Exit status: 0 done, 2 wrong usage.")]
struct Timeout {
    /// The card interface clock in Hz (k, M: powers of 1000), in front of the divider
    #[arg(long, value_name = "HZ")]
    bus: String,
    /// CLKDIV: 0 is bypass, else the clock is divided by twice the value
    #[arg(long, value_name = "N", default_value = "0")]
    div: String,
    /// TMOUT: response timeout in bits 7:0, data timeout in bits 31:8, in card clocks
    #[arg(long, value_name = "VALUE", default_value = "0xffffffff")]
    tmout: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command.
#[must_use]
pub fn run(args: &Args) -> ExitCode {
    match &args.what {
        What::Timeout(args) => print(timeout(args), 2),
        What::Regs(args) => regs::run(args),
        What::Bench(args) => bench::run(args),
    }
}

/// Prints what there is to say, or the one line that says why not, with exit status `status`.
fn print(text: Result<String, String>, status: u8) -> ExitCode {
    match text {
        Ok(text) => crate::output::print("dw", &text, ExitCode::SUCCESS),
        Err(e) => crate::output::fail("dw", e, status),
    }
}

fn timeout(args: &Timeout) -> Result<String, String> {
    let hz = hertz(&args.bus)?;
    let div: u8 = number(&args.div)
        .and_then(|n| n.try_into().ok())
        .ok_or_else(|| format!("--div '{}' is not a number from 0 to 255", args.div))?;
    let tmout = number(&args.tmout)
        .ok_or_else(|| format!("--tmout '{}' is not a number of 32 bits, as 0xffffffff", args.tmout))?;
    let response = response_timeout(tmout, div, hz);
    let data = data_timeout(tmout, div, hz);
    let by = divisor(div);
    if args.json {
        let object = serde_json::json!({
            "bus_hz": hz, "div": div, "divides_by": by, "tmout": tmout,
            "response_clocks": tmout & 0xff, "response_ns": response.as_nanos(),
            "data_clocks": tmout >> 8, "data_ns": data.as_nanos(), "data_ms": millis_up(data),
            "margin_ms": MARGIN.as_nanos() / 1_000_000,
        });
        return Ok(crate::output::json(object));
    }
    let mut text = String::new();
    let row = |text: &mut String, what: &str, clocks: u32, d: Duration| {
        let _ = writeln!(
            text,
            "{what:<17} {clocks:>8} clocks  {:>11}  {:>7} ms rounded up, a software timer gives it {} ms",
            format_time(d.as_nanos()),
            millis_up(d),
            millis_up(d.saturating_add(MARGIN)),
        );
    };
    let _ =
        writeln!(text, "card clock        {hz} Hz / {by} = {:.3} MHz", f64::from(hz) / f64::from(by) / 1e6);
    row(&mut text, "response timeout", tmout & 0xff, response);
    row(&mut text, "data timeout", tmout >> 8, data);
    let exact = u64::from(tmout >> 8) * u64::from(by) * 1000;
    if exact > u64::from(u32::MAX) {
        let wrapped = exact as u32 / (hz / 1000).max(1);
        let _ = writeln!(
            text,
            "beware            clocks * divisor * 1000 does not fit 32 bits: cut off it would give {}",
            format_time(u64::from(wrapped) * 1000)
        );
    }
    Ok(text)
}

/// A number of 32 bits, decimal or with 0x.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A clock such as `50M`, `400k` or `50000000`.
fn hertz(text: &str) -> Result<u32, String> {
    let (digits, scale) = match text.trim().trim_end_matches("Hz") {
        t if t.ends_with(['k', 'K']) => (&t[..t.len() - 1], 1000),
        t if t.ends_with('M') => (&t[..t.len() - 1], 1_000_000),
        t => (t, 1),
    };
    digits.trim().parse().ok().and_then(|n: u32| n.checked_mul(scale)).filter(|hz| *hz > 0).ok_or_else(|| {
        format!("--bus '{text}' is not a clock from 1 Hz to 4294 MHz, as 50M, 400k or 50000000")
    })
}
