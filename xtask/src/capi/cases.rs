//! The table of tests in C, and what became of them.

use super::compile::{Build, Compiler, Language};
use super::runs::{self, Outcome, Stage};
use super::{crate_dir, work_dir};
use crate::error::{At, Error, Result};
use crate::test::Verdict;
use std::fs;
use std::path::{Path, PathBuf};

/// One program of `crates/pindown-capi`.
struct Case {
    source: &'static str,
    cxx: bool,
    asan: bool,
    /// io_uring and userfaultfd do not work under valgrind; what needs neither does.
    valgrind: bool,
    /// Nothing is left at exit, which the test waits for. Elsewhere the worker may still be there, and its cache's table,
    /// which LeakSanitizer does not look into (a mapping).
    ends: bool,
    args: &'static [&'static str],
}

const fn case(source: &'static str, cxx: bool, valgrind: bool, ends: bool) -> Case {
    Case { source, cxx, asan: true, valgrind, ends, args: &[] }
}

const CASES: &[Case] = &[
    case("tests/c/cache.c", true, true, true),
    case("tests/c/queue.c", true, true, true),
    case("tests/c/misuse.c", true, true, true),
    case("tests/c/threads.c", true, true, true),
    // A child leaves what it inherited. AddressSanitizer's allocator does not let go of its locks over a fork (GCC 12):
    // when another thread held one, the child's threads wait for it for ever.
    Case { asan: false, ..case("tests/c/fork.c", true, false, false) },
    case("tests/c/watch.c", true, false, true),
    Case { args: &["LIBRARY"], ..case("tests/c/unload.c", false, true, false) },
    case("examples/io_uring_write.c", false, false, false),
    case("../../docs/from-c.md", false, true, false),
];

/// Builds and installs the library, then everything in the table.
pub(crate) fn verdict() -> Result<Verdict> {
    let compiler = match Compiler::prepare() {
        Err(Error::Missing { what, remedy }) => return Ok(Verdict::Skipped(format!("{what}: {remedy}"))),
        other => other?,
    };
    let mut tally = Tally::default();
    tally.note("exports", runs::exports(&compiler));
    tally.note("header as C11", compiler.header(Language::C11).map(|()| Outcome::Good));
    tally.note("header as C++17", compiler.header(Language::Cxx17).map(|()| Outcome::Good));
    let stage = Stage::new(&compiler)?;
    CASES.iter().for_each(|case| run(case, &compiler, &stage, &mut tally));
    Ok(tally.verdict())
}

fn run(case: &Case, compiler: &Compiler, stage: &Stage, tally: &mut Tally) {
    let name = Path::new(case.source).file_stem().unwrap_or_default().to_string_lossy();
    let mut each = |how: &str, language, build, then: &dyn Fn(&Path) -> Result<Outcome>| {
        let program = source(case).and_then(|source| {
            compiler.program(&source, &format!("{name}-{how}"), (language, build), &["-ldl"])
        });
        tally.note(&format!("{name} {how}"), program.and_then(|program| then(&program)));
    };
    let ourselves = |program: &Path| stage.run(program, case.args, false);
    each("c11", Language::C11, Build::Plain, &ourselves);
    if case.asan {
        each("asan", Language::C11, Build::AddressSanitizer, &|program| {
            stage.sanitized(program, case.args, case.ends)
        });
    }
    each("static", Language::C11, Build::Static, &ourselves);
    if case.cxx {
        each("c++17", Language::Cxx17, Build::Plain, &ourselves);
    }
    if rustix::process::geteuid().is_root() {
        each("plain-user", Language::C11, Build::Plain, &|program| stage.run(program, case.args, true));
    }
    if case.valgrind {
        each("valgrind", Language::C11, Build::Plain, &|program| {
            stage.valgrind(program, case.args, case.ends)
        });
    }
}

/// The file to compile; of a page, its C.
fn source(case: &Case) -> Result<PathBuf> {
    let path = crate_dir().join(case.source);
    if path.extension().is_none_or(|e| e != "md") {
        return Ok(path);
    }
    let page = fs::read_to_string(&path).at("read", &path)?;
    let blocks = page.split("```c\n").skip(1).filter_map(|rest| rest.split("```").next());
    let out = work_dir().join("page.c");
    fs::write(&out, blocks.collect::<String>()).at("write", &out)?;
    Ok(out)
}

#[derive(Default)]
struct Tally {
    good: usize,
    skipped: usize,
    bad: Vec<String>,
}

impl Tally {
    fn note(&mut self, name: &str, outcome: Result<Outcome>) {
        match outcome {
            Ok(Outcome::Good) => {
                println!("    {name}: good");
                self.good += 1;
            }
            // A compiler that is not there.
            Err(Error::Missing { what, remedy }) => self.skip(name, &format!("{what} is missing: {remedy}")),
            Ok(Outcome::Skipped(why)) => self.skip(name, &why),
            Ok(Outcome::Bad(why)) => self.fail(name, &why),
            Err(e) => self.fail(name, &e.to_string()),
        }
    }

    fn skip(&mut self, name: &str, why: &str) {
        println!("    {name}: skipped: {why}");
        self.skipped += 1;
    }

    fn fail(&mut self, name: &str, why: &str) {
        println!("    {name}: BAD\n{why}");
        self.bad.push(name.to_owned());
    }

    fn verdict(&self) -> Verdict {
        println!("    {} good, {} skipped, {} bad", self.good, self.skipped, self.bad.len());
        if self.bad.is_empty() { Verdict::Passed } else { Verdict::Failed(self.bad.join(", ")) }
    }
}
