//! A file that holds what a card has stored for good, and nothing that it could still lose.
//!
//! The card model keeps its contents in memory. Chunks of the file are read into it when they are first touched; what was
//! written goes to the file when the disk says that it is durable, so that killing the server is what a loss of power
//! is to a card: its cache is gone.

use mmc_mock::storage::Storage;
use std::collections::HashSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Sectors of a chunk, 256 KiB as in [`Storage`].
const CHUNK: u64 = 512;
/// With more ranges than this, neighbours are joined.
const MANY: usize = 4096;

/// Lends the contents of a card.
pub type Door = Box<dyn FnMut(&mut dyn FnMut(&mut Storage))>;

/// The file.
#[derive(Debug)]
pub struct Image {
    file: File,
    /// Sectors of the file, and of the card's storage.
    sectors: u64,
    /// It was empty when it was opened: there is nothing to load.
    blank: bool,
    /// Chunks that the card has.
    loaded: HashSet<u64>,
    /// Chunks that may hold something but zeroes in the file.
    solid: HashSet<u64>,
    /// Written since the last store, first sector and the one behind the last.
    dirty: Vec<(u64, u64)>,
}

/// A file that was made and is removed with this, unless it is [kept](Self::keep).
#[derive(Debug, Default)]
pub struct Made(Option<PathBuf>);

impl Made {
    /// It stays.
    pub fn keep(&mut self) {
        self.0 = None;
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // Somebody else may have removed it.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Opens or makes the file; its length, 0 if it is new; what removes it again if it was made.
///
/// # Errors
/// One line: it cannot be opened, is no regular file, or another server has it.
pub fn open(path: &Path) -> Result<(File, u64, Made), String> {
    let named = path.display();
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let mut made = Made::default();
    let file = options.open(path).or_else(|e| {
        if e.kind() != io::ErrorKind::NotFound {
            return Err(e);
        }
        let file = options.create(true).truncate(false).open(path)?;
        made = Made(Some(path.to_owned()));
        Ok(file)
    });
    let file = file.map_err(|e| format!("{named}: {e}"))?;
    let meta = file.metadata().map_err(|e| format!("{named}: {e}"))?;
    if !meta.is_file() {
        return Err(format!("{named} is no regular file: an image is a file as long as the card"));
    }
    match file.try_lock() {
        Ok(()) => Ok((file, meta.len(), made)),
        Err(TryLockError::WouldBlock) => {
            // Both have made it.
            made.keep();
            Err(format!("{named} is in use by another mmc-lab serve"))
        }
        Err(TryLockError::Error(e)) => Err(format!("{named}: cannot lock it: {e}")),
    }
}

impl Image {
    /// The file for a card that stores `sectors`; an empty one is not touched before it is [`lengthen`](Self::lengthen)ed.
    ///
    /// # Errors
    /// One line: it has another length.
    pub fn new(file: File, sectors: u64) -> Result<Self, String> {
        let length = file.metadata().map_err(|e| format!("the image: {e}"))?.len();
        let blank = length == 0;
        if !blank && length != sectors * 512 {
            return Err(format!(
                "the image has {length} bytes and the card stores {}: give --size, another card or another image",
                sectors * 512
            ));
        }
        Ok(Self { file, sectors, blank, loaded: HashSet::new(), solid: HashSet::new(), dirty: Vec::new() })
    }

    /// An empty file becomes as long as the card, without taking room.
    ///
    /// # Errors
    /// One line: the file system has none of this length.
    pub fn lengthen(&self) -> Result<(), String> {
        if self.blank {
            self.file.set_len(self.sectors * 512).map_err(|e| format!("the image: {e}"))?;
        }
        Ok(())
    }

    /// The sectors of the storage behind these of the card (a card that lies about its size wraps around), in pieces that
    /// lie in one chunk each.
    fn pieces(&self, lba: u64, blocks: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
        let (size, end) = (self.sectors.max(1), lba.saturating_add(blocks));
        let mut next = lba;
        std::iter::from_fn(move || {
            let first = next % size;
            let n = (CHUNK - first % CHUNK).min(end.saturating_sub(next)).min(size - first);
            next += n;
            (n > 0).then_some((first, n))
        })
    }

    /// The card is about to be asked for these sectors: puts the file's contents into it, once.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn load(&mut self, lba: u64, blocks: u64, door: &mut Door) -> io::Result<()> {
        let mut result = Ok(());
        door(&mut |s| result = self.put(lba, blocks, s));
        result
    }

    /// All of the file, at once.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn fill(&mut self, storage: &mut Storage) -> io::Result<()> {
        self.put(0, self.sectors, storage)
    }

    fn put(&mut self, lba: u64, blocks: u64, storage: &mut Storage) -> io::Result<()> {
        if self.blank {
            return Ok(());
        }
        let mut buf = Vec::new();
        for (first, _) in self.pieces(lba, blocks) {
            let chunk = first / CHUNK;
            if self.loaded.contains(&chunk) {
                continue;
            }
            let n = CHUNK.min(self.sectors - chunk * CHUNK);
            buf.resize(n as usize * 512, 0);
            self.file.read_exact_at(&mut buf, chunk * CHUNK * 512)?;
            self.loaded.insert(chunk);
            if buf.iter().any(|b| *b != 0) {
                self.solid.insert(chunk);
                // Inside: the file is as long as the storage.
                let _ = storage.write(chunk * CHUNK * 512, &buf);
            }
        }
        Ok(())
    }

    /// The card was told to write (or discard) these sectors, however that ended.
    pub fn wrote(&mut self, lba: u64, blocks: u64) {
        for (first, n) in self.pieces(lba, blocks) {
            match self.dirty.last_mut() {
                Some((_, end)) if *end == first => *end = first + n,
                _ => self.dirty.push((first, first + n)),
            }
        }
        if self.dirty.len() > MANY {
            self.join();
        }
    }

    fn join(&mut self) {
        self.dirty.sort_unstable();
        self.dirty.dedup_by(|next, kept| {
            let joins = next.0 <= kept.1;
            if joins {
                kept.1 = kept.1.max(next.1);
            }
            joins
        });
    }

    /// All that was written is durable: puts it into the file, where it survives this process. Zeroes over a hole stay a
    /// hole.
    ///
    /// # Errors
    /// The file cannot be written; nothing is forgotten, the next store tries all of it again.
    pub fn store(&mut self, door: &mut Door) -> io::Result<()> {
        self.join();
        let mut result = Ok(());
        let mut buf = Vec::new();
        for &(first, end) in &self.dirty {
            for (first, n) in self.pieces(first, end - first) {
                buf.resize(n as usize * 512, 0);
                let mut read = Ok(());
                door(&mut |s| read = s.read(first * 512, &mut buf));
                result = result.and_then(|()| read.map_err(io::Error::other));
                let zero = buf.iter().all(|b| *b == 0);
                if zero && !self.solid.contains(&(first / CHUNK)) {
                    continue;
                }
                if !zero {
                    self.solid.insert(first / CHUNK);
                }
                result = result.and_then(|()| self.file.write_all_at(&buf, first * 512));
            }
        }
        if result.is_ok() {
            self.dirty.clear();
        }
        result
    }

    /// The file itself is to survive a loss of power of this machine.
    ///
    /// # Errors
    /// As `fdatasync`.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::os::unix::fs::MetadataExt;
    use std::rc::Rc;

    fn door(storage: &Rc<RefCell<Storage>>) -> Door {
        let storage = Rc::clone(storage);
        Box::new(move |f| f(&mut storage.borrow_mut()))
    }

    fn file(name: &str) -> (std::path::PathBuf, File) {
        let path = std::env::temp_dir().join(format!("mmc-lab-image-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let (file, len, mut made) = open(&path).unwrap();
        assert_eq!(len, 0);
        made.keep();
        (path, file)
    }

    #[test]
    fn what_is_stored_is_there_for_the_next_server_and_holes_stay_holes() {
        let (path, new) = file("next");
        let storage = Rc::new(RefCell::new(Storage::new(1 << 20)));
        let mut door_1 = door(&storage);
        let mut image = Image::new(new, 1 << 20).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0, "the server may yet fail to start");
        image.lengthen().unwrap();
        for (lba, byte) in [(3, 1), (511, 2), (1_048_575, 3), (9000, 0)] {
            image.load(lba, 1, &mut door_1).unwrap();
            storage.borrow_mut().write(lba * 512, &[byte; 512]).unwrap();
            image.wrote(lba, 1);
        }
        assert_eq!(std::fs::metadata(&path).unwrap().blocks(), 0, "nothing before it is durable");
        image.store(&mut door_1).unwrap();
        assert!(std::fs::metadata(&path).unwrap().blocks() < 64, "512 MiB with three sectors in them");
        assert!(open(&path).unwrap_err().contains("in use"), "two servers on one file");
        drop(image);

        let storage = Rc::new(RefCell::new(Storage::new(1 << 20)));
        let (again, len, _) = open(&path).unwrap();
        assert_eq!(len, 1 << 29);
        let mut image = Image::new(again, 1 << 20).unwrap();
        let mut door_2 = door(&storage);
        image.load(510, 3, &mut door_2).unwrap();
        let mut sectors = [9; 1536];
        storage.borrow_mut().read(510 * 512, &mut sectors).unwrap();
        assert_eq!((sectors[511], sectors[512], sectors[1024]), (0, 2, 0));
        // Zeroes over what is no hole are written; a second load does not bring the old back.
        storage.borrow_mut().write(511 * 512, &[0; 512]).unwrap();
        image.wrote(511, 1);
        image.load(511, 1, &mut door_2).unwrap();
        image.store(&mut door_2).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((bytes[3 * 512], bytes[511 * 512], bytes[(1 << 29) - 1]), (1, 0, 3));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_card_that_lies_about_its_size_fills_the_file_it_has() {
        let (path, new) = file("wraps");
        let storage = Rc::new(RefCell::new(Storage::new(1000)));
        let mut image = Image::new(new, 1000).unwrap();
        image.lengthen().unwrap();
        storage.borrow_mut().write(0, &[5; 1024]).unwrap();
        storage.borrow_mut().write(998 * 512, &[6; 1024]).unwrap();
        image.wrote(2998, 4);
        image.store(&mut door(&storage)).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((bytes[1023], bytes[1024], bytes[998 * 512], bytes.len()), (5, 0, 6, 512_000));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_that_takes_no_room_may_hold_something() {
        // As where a small file lies in its directory's entry, or has no place yet.
        let (path, other) = file("inline");
        other.set_len(1000 * 512).unwrap();
        let mut image = Image::new(other.try_clone().unwrap(), 1000).unwrap();
        other.write_all_at(&[8; 512], 512).unwrap();
        let storage = Rc::new(RefCell::new(Storage::new(1000)));
        image.load(1, 1, &mut door(&storage)).unwrap();
        let mut sector = [0; 512];
        storage.borrow_mut().read(512, &mut sector).unwrap();
        assert_eq!(sector, [8; 512]);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_that_was_made_goes_and_one_that_was_there_stays() {
        let (path, new) = file("made");
        drop(new);
        drop(open(&path).unwrap());
        assert!(path.exists(), "it was there");
        std::fs::remove_file(&path).unwrap();
        drop(open(&path).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn many_small_writes_are_joined() {
        let (path, new) = file("many");
        let mut image = Image::new(new, 1 << 20).unwrap();
        for i in 0..20_000_u64 {
            image.wrote(i * 7919 % 20_000, 1);
        }
        image.join();
        assert_eq!(image.dirty, [(0, 20_000)]);
        std::fs::remove_file(path).unwrap();
    }
}
