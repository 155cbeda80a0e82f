//! What one boot carries into the guest: `/init`, the command, and files of the host under /job.

use super::cpio::Cpio;
use super::userland::Guest;
use crate::error::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};

const INIT: &str = include_str!("../../lab/init.sh");

/// A command with its files.
pub(crate) struct Job {
    pub(crate) guest: Guest,
    /// For the guest's `sh`.
    pub(crate) script: String,
    /// Files and directories; a directory's contents go straight under /job.
    pub(crate) files: Vec<PathBuf>,
    /// Rows and columns of the terminal for an interactive shell.
    pub(crate) shell: Option<(u16, u16)>,
}

impl Job {
    pub(crate) fn write(&self, archive: &Path) -> Result<()> {
        let mut cpio = Cpio::create(archive)?;
        cpio.file("init", 0o755, INIT.as_bytes())?;
        cpio.directory("lab")?;
        cpio.file("lab/config", 0o644, self.config().as_bytes())?;
        cpio.file("lab/command", 0o644, self.script.as_bytes())?;
        cpio.file("lab/carried", 0o644, carried(&self.files).as_bytes())?;
        cpio.directory("job")?;
        for path in &self.files {
            add(&mut cpio, path)?;
        }
        cpio.finish()
    }

    fn config(&self) -> String {
        let mut config = format!("GUEST={}\n", self.guest.name());
        if let Some((rows, columns)) = self.shell {
            config += &format!("SHELL_ROWS={rows} SHELL_COLUMNS={columns}\n");
        }
        config
    }
}

/// Sizes and names of the files: a guest without the memory to unpack them all must say so.
fn carried(files: &[PathBuf]) -> String {
    let line = |path: &PathBuf| {
        let bytes = fs::metadata(path).ok().filter(|m| m.is_file())?.len();
        Some(format!("{bytes} {}\n", path.file_name()?.to_string_lossy()))
    };
    files.iter().filter_map(line).collect()
}

fn add(cpio: &mut Cpio, path: &Path) -> Result<()> {
    // Not the link but what it points to: the target may lie outside of what is carried.
    let real = fs::canonicalize(path).map_err(|e| Error::Missing {
        what: format!("{} ({e})", path.display()),
        remedy: "give a file or directory of this machine".into(),
    })?;
    if real.is_dir() {
        return cpio.tree(&real, "job/", &|_| true);
    }
    let name = path.file_name().unwrap_or(real.as_os_str());
    cpio.path(&real, &format!("job/{}", name.to_string_lossy()), &|_| true)
}

/// Words as one line of shell that means just these words. A single word is a script as it stands.
pub(crate) fn script(words: &[String]) -> String {
    match words {
        [script] => script.clone(),
        words => words.iter().map(|w| quote(w)).collect::<Vec<_>>().join(" "),
    }
}

/// A word as sh has to be given it.
pub(crate) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) && !word.contains('=') {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_words() {
        let words = ["printf", "%s\n", "it's", "", "$HOME"].map(String::from);
        assert_eq!(script(&words), "printf '%s\n' 'it'\\''s' '' '$HOME'");
    }

    #[test]
    fn one_word_is_a_script() {
        assert_eq!(script(&["a; b".to_owned()]), "a; b");
    }
}
