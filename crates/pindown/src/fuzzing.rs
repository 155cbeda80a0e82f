//! What the fuzz target of the maps parser runs; on random bytes also here.

use crate::sys::maps::{MapsLine, parse_line};

/// Any bytes: no panic, and what is accepted is written back as it was read.
pub fn maps_parser(data: &[u8]) {
    for line in data.split_inclusive(|&b| b == b'\n') {
        if let Some(parsed) = parse_line(line) {
            assert!(parsed.start < parsed.end);
            assert_eq!(parse_line(&written(&parsed)), Some(parsed), "{}", String::from_utf8_lossy(line));
        }
    }
}

/// As the kernel writes it.
fn written(line: &MapsLine<'_>) -> Vec<u8> {
    let flag = |set: bool, yes: char| if set { yes } else { '-' };
    let MapsLine { start, end, perms, offset_bytes, device: (major, minor), inode, name } = line;
    let (r, w, x) = (flag(perms.readable, 'r'), flag(perms.writable, 'w'), flag(perms.executable, 'x'));
    let shared = if perms.shared { 's' } else { 'p' };
    let head =
        format!("{start:x}-{end:x} {r}{w}{x}{shared} {offset_bytes:08x} {major:02x}:{minor:02x} {inode} ");
    [head.as_bytes(), name].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    /// Near what is a line, so that much of it is accepted.
    fn line() -> impl Strategy<Value = String> {
        "[0-9a-f]{1,17}-[0-9a-f]{1,17} [r-][w-][x-][psq] [0-9a-f]{1,9} [0-9a-f]{2}:[0-9a-f]{2,9} [0-9]{1,20} {1,3}[ -~]{0,9}\n?"
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn near_lines(lines in prop::collection::vec(line(), 1..4)) {
            super::maps_parser(lines.concat().as_bytes());
        }

        #[test]
        fn any_bytes(data in prop::collection::vec(any::<u8>(), 0..200)) {
            super::maps_parser(&data);
        }
    }
}
