//! Buffers that stand between a lent slice and a request that owns its memory.

use core::marker::PhantomData;
use mmc_block::SECTOR;
use mmc_hal::Payload;

/// No buffer of one sector: a transfer of any length could not be made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("one of the buffers must be exactly 512 bytes long, and each a multiple of 512")]
pub struct NoSector;

/// A few buffers of different lengths. A transfer is made up of the longest that fit: of 32, 4 and 1 sectors, one of 70
/// sectors goes as 32 + 32 + 4 + 1 + 1.
///
/// `S` is the storage, an array or a `Vec` of `Some(buffer)`. A buffer that a host had to keep (quarantine) leaves its place
/// empty and is done without.
pub struct Bounce<S, B> {
    buffers: S,
    of: PhantomData<fn() -> B>,
}

impl<S, B> core::fmt::Debug for Bounce<S, B> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Bounce").finish_non_exhaustive()
    }
}

/// Whole sectors of a buffer; `None`: none, or not whole.
fn sectors(buffer: &impl Payload) -> Option<usize> {
    let bytes = buffer.bytes();
    let whole = bytes / SECTOR;
    (whole > 0 && whole.saturating_mul(SECTOR) == bytes).then_some(whole)
}

impl<S: AsMut<[Option<B>]>, B: Payload> Bounce<S, B> {
    /// Takes the buffers.
    ///
    /// # Errors
    /// [`NoSector`]; they are dropped.
    pub fn new(mut buffers: S) -> Result<Self, NoSector> {
        let mut single = false;
        for buffer in buffers.as_mut().iter().flatten() {
            single |= sectors(buffer).ok_or(NoSector)? == 1;
        }
        if single { Ok(Self { buffers, of: PhantomData }) } else { Err(NoSector) }
    }

    /// The longest buffer of at most `max` sectors, its place and its length.
    pub(crate) fn take(&mut self, max: u64) -> Option<Loan<B>> {
        let fits = |b: &B| sectors(b).filter(|n| u64::try_from(*n).is_ok_and(|n| n <= max));
        let (place, sectors) = self
            .buffers
            .as_mut()
            .iter()
            .enumerate()
            .filter_map(|(i, b)| Some((i, b.as_ref().and_then(fits)?)))
            .max_by_key(|(_, n)| *n)?;
        let buffer = self.buffers.as_mut().get_mut(place)?.take()?;
        Some(Loan { place, sectors, buffer })
    }
    pub(crate) fn put(&mut self, place: usize, buffer: Option<B>) {
        if let Some(b) = self.buffers.as_mut().get_mut(place) {
            *b = buffer;
        }
    }
}

/// A buffer on its way.
pub(crate) struct Loan<B> {
    pub(crate) place: usize,
    pub(crate) sectors: usize,
    pub(crate) buffer: B,
}

/// Copies `bytes` into `payload`, from its byte `from` on.
pub(crate) fn load(payload: &mut impl Payload, from: usize, bytes: &[u8]) {
    let mut skip = from;
    let mut rest = bytes;
    for i in 0..payload.segments() {
        let Some(segment) = payload.segment_mut(i) else { return };
        let at = skip.min(segment.len());
        skip = skip.saturating_sub(at);
        let Some(place) = segment.get_mut(at..) else { return };
        let n = place.len().min(rest.len());
        let (Some(to), Some((now, later))) = (place.get_mut(..n), rest.split_at_checked(n)) else { return };
        to.copy_from_slice(now);
        rest = later;
    }
}

/// Copies from `payload`, from its byte `from` on, into `bytes`.
pub(crate) fn unload(payload: &impl Payload, from: usize, bytes: &mut [u8]) {
    let mut skip = from;
    let mut rest = bytes;
    for i in 0..payload.segments() {
        let Some(segment) = payload.segment(i) else { return };
        let at = skip.min(segment.len());
        skip = skip.saturating_sub(at);
        let Some(source) = segment.get(at..) else { return };
        let n = source.len().min(rest.len());
        let (Some(source), Some((now, later))) = (source.get(..n), rest.split_at_mut_checked(n)) else {
            return;
        };
        now.copy_from_slice(source);
        rest = later;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmc_hal::{Batch, Gather};

    #[test]
    fn bytes_go_across_segments_and_come_back() {
        let mut batch = Gather::<[u8; 5], 3>::new();
        for _ in 0..3 {
            batch.push([0; 5], 0, 5).unwrap();
        }
        load(&mut batch, 3, &[1, 2, 3, 4, 5, 6, 7, 8]);
        let mut all = [9; 15];
        unload(&batch, 0, &mut all);
        assert_eq!(all, [0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0]);
        let mut some = [9; 4];
        unload(&batch, 9, &mut some);
        assert_eq!(some, [7, 8, 0, 0]);
        // Beyond the end nothing happens.
        load(&mut batch, 14, &[5, 5]);
        unload(&batch, 20, &mut some);
        assert_eq!(some, [7, 8, 0, 0]);
    }

    #[test]
    fn the_longest_that_fits_is_taken() {
        let mut three = [[0_u8; 512], [0; 512]];
        let [one, _] = &mut three;
        let mut long = [0; 2048];
        let buffers = [Some(&mut long[..]), None, Some(&mut one[..])];
        let mut bounce: Bounce<_, &mut [u8]> = Bounce::new(buffers).unwrap();
        let loan = bounce.take(70).unwrap();
        assert_eq!((loan.place, loan.sectors), (0, 4));
        assert_eq!(bounce.take(70).map(|l| (l.place, l.sectors)), Some((2, 1)));
        assert!(bounce.take(70).is_none(), "all are out");
        bounce.put(loan.place, Some(loan.buffer));
        assert!(bounce.take(3).is_none());
        assert!(Bounce::<_, [u8; 1024]>::new([Some([0; 1024])]).is_err());
        assert!(Bounce::<_, [u8; 100]>::new([Some([0; 100])]).is_err());
    }
}
