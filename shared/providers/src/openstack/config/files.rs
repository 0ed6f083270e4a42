//! Reading the files of the configuration.

use std::{
    fs,
    io::{self, Read as _},
    path::Path,
};

/// The largest file that is read, in bytes.
pub(super) const LARGEST: u64 = 1 << 20;

/// The text of a file, or in words why it cannot be had.
pub(super) fn read(path: &Path) -> Result<String, String> {
    String::from_utf8(bytes(path)?).map_err(|_| "is not a text file (UTF-8)".to_owned())
}

/// What a file holds, or in words why it cannot be had.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    let words = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        _ => format!("cannot be read: {error}"),
    };
    // Looked at before it is opened: opening a pipe waits for its writer.
    let about = fs::metadata(path).map_err(words)?;
    if about.is_dir() {
        return Err("is a folder; give the path of the file in it".to_owned());
    }
    if !about.is_file() {
        return Err("is not a plain file".to_owned());
    }
    let mut bytes = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes))
        .map_err(words)?;
    if bytes.len() as u64 > LARGEST {
        return Err(format!("is larger than {} KiB", LARGEST >> 10));
    }
    Ok(bytes)
}
