//! The wires and nothing on them.
#![no_std]
#![no_main]
use code_size::{Device, Timer, sink};
use embedded_hal::delay::DelayNs;
use embedded_hal::spi::SpiDevice;

fn main() {
    sink(Device.write(&[sink(0)]).is_ok());
    sink(Device.read(&mut [0]).is_ok());
    Timer.delay_ns(sink(1));
}
code_size::program!(main);
