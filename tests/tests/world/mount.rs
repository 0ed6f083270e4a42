//! A mounted ConfigMap.

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use anyhow::Result;

/// A ConfigMap as the kubelet mounts it: `config.yaml -> ..data/config.yaml`, and `..data`
/// leads to the folder of the current version.
pub(super) struct Mount {
    folder: PathBuf,
    version: usize,
}

impl Mount {
    pub(super) fn new(folder: PathBuf, text: &str) -> Result<Self> {
        fs::create_dir(&folder)?;
        let mut mount = Self { folder, version: 0 };
        mount.swap(text)?;
        symlink("..data/config.yaml", mount.file())?;
        Ok(mount)
    }

    /// Returns the path for `--config`.
    pub(super) fn file(&self) -> PathBuf {
        self.folder.join("config.yaml")
    }

    /// Replaces the previous version with a new one, all at once.
    pub(super) fn swap(&mut self, text: &str) -> Result<()> {
        let name = |version: usize| format!("..version_{version}");
        let before = self.folder.join(name(self.version));
        self.version += 1;
        let now = name(self.version);
        fs::create_dir(self.folder.join(&now))?;
        fs::write(self.folder.join(&now).join("config.yaml"), text)?;
        let aside = self.folder.join("..data_tmp");
        symlink(&now, &aside)?;
        fs::rename(&aside, self.folder.join("..data"))?;
        if before.exists() {
            fs::remove_dir_all(before)?;
        }
        Ok(())
    }

    /// Removes the key from the ConfigMap.
    pub(super) fn remove(&self) -> Result<()> {
        Ok(fs::remove_file(self.folder.join("..data/config.yaml"))?)
    }
}
