//! What all pictures are drawn with: a canvas in two sizes (for a screen and for a phone), axes, labels that keep clear of
//! each other.

use super::html::{COLOURS, clip, escape};
use crate::analysis::Class;
use crate::units::format_time;
use std::fmt::Write;

/// Widths of the two drawings, in CSS pixels: text is never scaled down to less than it says.
const WIDE: f64 = 900.0;
const NARROW: f64 = 358.0;

/// The style of a class; its CSS variable has the same name.
#[must_use]
pub fn css(class: Class) -> &'static str {
    match class {
        Class::Journal => "journal",
        Class::Reads => "read",
        Class::SyncWrites => "sync",
        Class::AsyncWrites => "async",
    }
}

/// A picture: its title, how to read it, and two drawings of the same.
#[derive(Clone, Debug)]
pub struct Picture {
    /// What it shows.
    pub title: String,
    /// How to read it.
    pub text: String,
    wide: Canvas,
    narrow: Canvas,
}

impl Picture {
    /// Drawn by `draw`, once for each size.
    pub fn new(title: impl Into<String>, text: impl Into<String>, draw: impl Fn(&mut Canvas)) -> Self {
        let drawn = |width, is_narrow| {
            let mut canvas = Canvas { width, narrow: is_narrow, height: 0.0, out: String::new() };
            draw(&mut canvas);
            canvas
        };
        Self { title: title.into(), text: text.into(), wide: drawn(WIDE, false), narrow: drawn(NARROW, true) }
    }

    /// One of its drawings; `id` is the page's name for it.
    #[must_use]
    pub fn svg(&self, wide: bool, id: &str) -> String {
        let (canvas, class) = if wide { (&self.wide, "wide") } else { (&self.narrow, "narrow") };
        format!(
            "<svg class=\"{class}\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0} {:.0}\" role=\"img\" \
             aria-labelledby=\"{id}\" aria-describedby=\"{id}d\"><title id=\"{id}\">{}</title><desc id=\"{id}d\">{}</desc>{}</svg>\n",
            canvas.width,
            canvas.height,
            escape(&self.title),
            escape(&self.text),
            canvas.out
        )
    }

    /// The wide drawing as a file of its own.
    #[must_use]
    pub fn standalone(&self) -> String {
        let paper = "<rect width=\"100%\" height=\"100%\" fill=\"var(--paper)\"/>";
        self.svg(true, "p").replacen("<title", &format!("<style>{COLOURS}</style>{paper}<title"), 1)
    }
}

/// Where a drawing is made. `y` runs downwards.
#[derive(Clone, Debug)]
pub struct Canvas {
    /// Its width.
    pub width: f64,
    /// Whether it is for a phone: labels go above, not beside.
    pub narrow: bool,
    /// Its height: to be set by whoever draws.
    pub height: f64,
    out: String,
}

impl Canvas {
    /// A text; `class` may be of `soft`, `end`, `mid`, `strong`, `small`, `halo`.
    pub fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let _ = write!(self.out, "<text{class} x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(text));
    }

    /// A bar; `more` is further attributes.
    pub fn rect(&mut self, class: &str, (x, y): (f64, f64), (w, h): (f64, f64), more: &str) {
        let w = w.max(0.0);
        let _ = write!(
            self.out,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\"{more}/>"
        );
    }

    /// Anything else, as SVG; names in it must be escaped.
    pub fn raw(&mut self, svg: &str) {
        self.out.push_str(svg);
    }

    /// A line along `d`, an SVG path.
    pub fn path(&mut self, class: &str, d: &str) {
        let _ = write!(self.out, "<path class=\"{class}\" d=\"{d}\"/>");
    }

    /// A coloured square with a name at each place of a legend that begins at (`x`, `y`) and takes a new line where it
    /// must; the `y` below it.
    pub fn legend(&mut self, x: f64, y: f64, items: &[(&str, &str)]) -> f64 {
        let (mut at, mut line) = (x, y);
        for (class, name) in items {
            let wide = 22.0 + text_width(name);
            if at > x && at + wide > self.width {
                (at, line) = (x, line + 20.0);
            }
            self.rect(class, (at, line), (13.0, 13.0), "");
            self.text(at + 18.0, line + 11.0, "", name);
            at += wide + 16.0;
        }
        line + 22.0
    }
}

/// About how wide a text is in the font of the pictures.
#[must_use]
pub fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * 8.3
}

/// A horizontal axis of waits, logarithmic, whole decades.
#[derive(Clone, Copy, Debug)]
pub struct LogAxis {
    left: f64,
    right: f64,
    low: f64,
    high: f64,
}

impl LogAxis {
    /// From `left` to `right`, for `from` to `to` nanoseconds.
    #[must_use]
    pub fn new((left, right): (f64, f64), from: f64, to: f64) -> Self {
        let low = from.max(1.0).log10().floor();
        let high = to.max(1.0).log10().ceil().max(low + 1.0);
        Self { left, right, low, high }
    }

    /// Where a wait is.
    #[must_use]
    pub fn at(&self, ns: f64) -> f64 {
        let share = (ns.max(1.0).log10() - self.low) / (self.high - self.low);
        self.left + share.clamp(0.0, 1.0) * (self.right - self.left)
    }

    /// The decades: place and name.
    pub fn decades(&self) -> impl Iterator<Item = (f64, String)> + '_ {
        (self.low as i32..=self.high as i32)
            .map(|k| (self.at(10_f64.powi(k)), format_time(10_u64.saturating_pow(k.max(0) as u32))))
    }

    /// Grid lines from `top` to `bottom` and names below.
    pub fn grid(&self, canvas: &mut Canvas, top: f64, bottom: f64) {
        let all: Vec<_> = self.decades().collect();
        let mut free = 0.0;
        for (x, name) in &all {
            canvas.path("grid", &format!("M{x:.1} {top:.1}V{bottom:.1}"));
            let half = text_width(name) / 2.0;
            let x = x.min(canvas.width - half).max(half);
            // Where decades are narrow not each has room for its name.
            if x - half >= free {
                canvas.text(x, bottom + 16.0, "soft mid", name);
                free = x + half;
            }
        }
    }
}

/// A horizontal axis of time, linear.
#[derive(Clone, Copy, Debug)]
pub struct TimeAxis {
    left: f64,
    right: f64,
    from: f64,
    to: f64,
}

impl TimeAxis {
    /// From `left` to `right`, for stamps `from` to `to` in nanoseconds.
    #[must_use]
    pub fn new((left, right): (f64, f64), from: u64, to: u64) -> Self {
        let (from, to) = (from as f64, to.max(from.saturating_add(1)) as f64);
        Self { left, right, from, to }
    }

    /// Where a stamp is.
    #[must_use]
    pub fn at(&self, ns: u64) -> f64 {
        let share = (ns as f64 - self.from) / (self.to - self.from);
        self.left + share.clamp(0.0, 1.0) * (self.right - self.left)
    }

    /// Whether something of a span is to be seen.
    #[must_use]
    pub fn shows(&self, from: u64, to: u64) -> bool {
        to as f64 > self.from && (from as f64) < self.to
    }

    /// Ticks at `y`, counted in seconds from `zero`, about one each `apart` pixels.
    pub fn ticks(&self, canvas: &mut Canvas, y: f64, zero: u64) {
        let apart = if canvas.narrow { 60.0 } else { 90.0 };
        let wanted = (self.to - self.from) / ((self.right - self.left) / apart).max(1.0);
        let decade = 10_f64.powf(wanted.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].map(|k| k * decade).into_iter().find(|s| *s >= wanted).unwrap_or(wanted);
        let digits = (9.0 - step.log10()).ceil().clamp(0.0, 6.0) as usize;
        let first = ((self.from - zero as f64) / step).ceil() as i64;
        canvas.path("axis", &format!("M{:.1} {y:.1}H{:.1}", self.left, self.right));
        for k in first.. {
            let at = k as f64 * step + zero as f64;
            if at > self.to || k - first > 40 {
                break;
            }
            let x = self.left + (at - self.from) / (self.to - self.from) * (self.right - self.left);
            canvas.path("axis", &format!("M{x:.1} {y:.1}v5"));
            let name = format!("{:.digits$} s", k as f64 * step / 1e9);
            let half = text_width(&name) / 2.0;
            let x = x.min(canvas.width - half).max(half);
            canvas.text(x, y + 18.0, "soft mid", &name);
        }
    }
}

/// A label that wants to be at a place.
#[derive(Clone, Debug)]
pub struct Label {
    /// Left end.
    pub x: f64,
    /// Base line.
    pub y: f64,
    /// The text.
    pub text: String,
}

/// Draws labels, each moved up or down until it is clear of those before it, within `top` and `bottom`.
pub fn labels(canvas: &mut Canvas, mut all: Vec<Label>, top: f64, bottom: f64) {
    const LINE: f64 = 15.0;
    let mut placed: Vec<(f64, f64, f64)> = Vec::new();
    all.sort_by(|a, b| a.y.total_cmp(&b.y));
    for label in &mut all {
        if canvas.narrow {
            label.text = clip(&label.text, 26);
        }
        let width = text_width(&label.text) * 1.1;
        label.x = label.x.min(canvas.width - width).max(0.0);
        let clear = |y: f64| {
            y >= top
                && y <= bottom
                && placed.iter().all(|&(x, w, at)| {
                    (y - at).abs() >= LINE || label.x + width + 4.0 < x || label.x > x + w + 4.0
                })
        };
        let wanted = label.y;
        let tried = (0..40).flat_map(|k| [wanted + f64::from(k) * 4.0, wanted - f64::from(k) * 4.0]);
        label.y = tried.into_iter().find(|y| clear(*y)).unwrap_or(wanted);
        placed.push((label.x, width, label.y));
        canvas.text(label.x, label.y, "halo strong", &label.text);
    }
}

/// Dashes of the lines of a picture, so that they need no colour to be told apart.
#[must_use]
pub fn dash(series: usize) -> &'static str {
    ["", "7 3", "2 3", "10 3 2 3", "1 2", "5 5"].get(series % 6).copied().unwrap_or("")
}

/// The colour of a line of a picture.
#[must_use]
pub fn colour(series: usize) -> String {
    format!("var(--p{})", series % 6)
}
