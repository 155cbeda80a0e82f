//! The README's ten lines: that they are those of the example, and that the example works.
#![cfg(feature = "verbs")]

mod verbs_common;
#[path = "../examples/verbs_write.rs"]
mod verbs_write;

use std::path::Path;

/// The code of the fenced block that contains `marker`, without comments.
fn code_in(text: &str, marker: &str) -> Vec<String> {
    let block = text.split("```").skip(1).step_by(2).find(|block| block.contains(marker)).expect("a block");
    let lines = block.lines().skip(1).map(|line| line.split("//").next().unwrap_or("").trim());
    lines.filter(|line| !line.is_empty()).map(|line| line.replace("\"mlx5_0\"", "device")).collect()
}

#[test]
fn the_lines_in_the_documents_are_those_of_the_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let example = include_str!("../examples/verbs_write.rs");
    for document in ["README.md", "docs/with-rdma.md"] {
        let text = std::fs::read_to_string(root.join(document)).expect(document);
        let mut rest = example.lines().map(str::trim);
        let code = code_in(&text, "Verbs::open(");
        assert!((8..=10).contains(&code.len()), "{document} promises ten lines: {code:#?}");
        for line in code {
            assert!(rest.any(|l| l == line), "{document}: the example does not have, in this order: {line}");
        }
    }
}

#[test]
fn the_first_cached_write_registers_once() {
    let device = device_or_skip!();
    let stats = verbs_write::on(&device).unwrap();
    // Where no monitor starts nothing is cached, and it works all the same.
    match stats.uncached {
        0 => assert_eq!((stats.registrations, stats.hits), (2, 4), "{stats:?}"),
        _ => eprintln!("no monitor starts here: {stats:?}"),
    }
}
