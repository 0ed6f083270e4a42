//! Files that are read again when they change.
//!
//! Their content is polled: a mounted Secret or ConfigMap changes by symbolic links, which a watch
//! on the file does not notice.

use std::{
    collections::BTreeMap,
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{
    task::spawn_blocking,
    time::{Instant, sleep_until},
};

/// The largest file that is read, in bytes, unless another bound is set.
const LARGEST: usize = 1 << 20;
/// The period of looking at files.
const PERIOD: Duration = Duration::from_secs(5);

/// The files that something was made from, and their content when they were read.
///
/// What counts as a change is the content that the reader got, so a file that changes while
/// it is read, or right after, is noticed as well.
#[derive(Clone, Debug)]
pub struct Files {
    seen: BTreeMap<PathBuf, u64>,
    next_look: Instant,
    largest: usize,
}

impl Default for Files {
    fn default() -> Self {
        Self::of_at_most(LARGEST)
    }
}

impl Files {
    /// Watches files of at most this number of bytes.
    pub fn of_at_most(largest: usize) -> Self {
        Self { seen: BTreeMap::new(), next_look: Instant::now() + PERIOD, largest }
    }

    /// Returns the content of a file, or in words why it cannot be read. Blocks while it reads.
    pub fn read(&mut self, path: &Path) -> Result<Vec<u8>, String> {
        let content = read(path, self.largest);
        self.remember(path, &content);
        content
    }

    /// Returns the text of a file, or in words why it cannot be read. Blocks while it reads.
    pub fn text(&mut self, path: &Path) -> Result<String, String> {
        String::from_utf8(self.read(path)?).map_err(|_| "is not a text file (UTF-8)".to_owned())
    }

    /// Remembers the content of a file before something else reads it. Blocks while it reads.
    pub fn notice(&mut self, path: &Path) {
        self.remember(path, &read(path, self.largest));
    }

    /// Remembers content that was read elsewhere. The content that was remembered first stays.
    pub fn remember(&mut self, path: &Path, content: &Result<Vec<u8>, String>) {
        self.seen.entry(path.to_owned()).or_insert_with(|| fingerprint(content));
    }

    /// Waits until the content of a file differs from what was read, then forgets all files: the
    /// caller reads them again. Can be cancelled at any time.
    pub async fn changed(&mut self) {
        loop {
            sleep_until(self.next_look).await;
            let (seen, largest) = (self.seen.clone(), self.largest);
            let differs =
                move |(path, seen): (&PathBuf, &u64)| fingerprint(&read(path, largest)) != *seen;
            let differ = move || seen.iter().any(differs);
            let is_news = spawn_blocking(differ).await.unwrap_or(false);
            self.next_look = Instant::now() + PERIOD;
            if is_news {
                self.seen.clear();
                return;
            }
        }
    }
}

/// Returns a hash of the content, or of the reason why a file cannot be read: a file that appears
/// is a change.
fn fingerprint(content: &Result<Vec<u8>, String>) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

fn read(path: &Path, largest: usize) -> Result<Vec<u8>, String> {
    let words = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        _ => format!("cannot be read: {error}"),
    };
    // The type is checked before the file is opened, because opening a pipe waits for its writer.
    let about = fs::metadata(path).map_err(words)?;
    if about.is_dir() {
        return Err("is a folder; give the path of the file in it".to_owned());
    }
    if !about.is_file() {
        return Err("is not a plain file".to_owned());
    }
    let mut bytes = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(largest as u64 + 1).read_to_end(&mut bytes))
        .map_err(words)?;
    if bytes.len() > largest {
        return Err(format!("is larger than {} KiB", largest >> 10));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    /// This is longer than one period.
    const SOON: Duration = Duration::from_secs(6);

    async fn is_noticed(files: &mut Files) -> bool {
        timeout(SOON, files.changed()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn other_contents_are_noticed_and_equal_ones_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let (file, later) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&file, "one").unwrap();
        let mut files = Files::default();
        let load = |files: &mut Files| (files.text(&file), files.text(&later));
        let missing = || Err("there is no such file".to_owned());
        assert_eq!(load(&mut files), (Ok("one".to_owned()), missing()));
        assert!(!is_noticed(&mut files).await);
        fs::write(folder.path().join("a"), "one").unwrap();
        assert!(!is_noticed(&mut files).await, "the same content at another time");
        fs::write(folder.path().join("b"), "").unwrap();
        assert!(is_noticed(&mut files).await, "a file that was missing");
        assert_eq!(load(&mut files), (Ok("one".to_owned()), Ok(String::new())));
        fs::remove_file(folder.path().join("a")).unwrap();
        assert!(is_noticed(&mut files).await);
        assert_eq!(load(&mut files).0, missing());
        assert!(!is_noticed(&mut files).await, "once");
    }

    #[tokio::test(start_paused = true)]
    async fn a_mounted_secret_changes_by_its_links() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for (version, text) in [("1", "one"), ("2", "two")] {
            fs::create_dir(at(version)).unwrap();
            fs::write(at(version).join("key"), text).unwrap();
        }
        symlink("1", at("..data")).unwrap();
        symlink("..data/key", at("key")).unwrap();
        let mut files = Files::default();
        assert_eq!(files.text(&at("key")).unwrap(), "one");
        symlink("2", at("..tmp")).unwrap();
        fs::rename(at("..tmp"), at("..data")).unwrap();
        assert!(is_noticed(&mut files).await);
        assert_eq!(files.text(&at("key")).unwrap(), "two");
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_between_two_reads_of_one_file_is_noticed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut files = Files::default();
        files.read(file.path()).unwrap();
        fs::write(file.path(), "new").unwrap();
        files.read(file.path()).unwrap();
        assert!(is_noticed(&mut files).await, "the first reader has the old content");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_is_not_put_off_by_cancelled_waits() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut files = Files::default();
        files.read(file.path()).unwrap();
        fs::write(file.path(), "new").unwrap();
        let wait = Duration::from_secs(1);
        let mut waits = 1;
        while timeout(wait, files.changed()).await.is_err() {
            waits += 1;
        }
        assert!(waits < 7, "{waits} waits");
    }
}
