//! The report in a real browser, as wide as a phone: nothing overflows, nothing is too small to read.

use std::path::{Path, PathBuf};
use std::process::Command;

use pindown_replay::{Workload, advise::advise, report, suite::Scenario};

/// What a person would see, measured by the browser itself and left in the title.
const MEASURE: &str = "<script>addEventListener('load',()=>{\
    const px=e=>e.getBoundingClientRect();\
    const texts=[...document.querySelectorAll('svg text')].map(t=>px(t).height);\
    const charts=[...document.querySelectorAll('section > svg')].map(c=>px(c));\
    document.title=JSON.stringify({page:document.documentElement.scrollWidth,window:innerWidth,\
    smallest:Math.min(...texts),charts:charts.length,narrowest:Math.min(...charts.map(c=>c.width)),\
    fetched:performance.getEntriesByType('resource').length,\
    rows:document.querySelectorAll('tbody tr').length,heading:document.querySelector('h1').innerText})})</script>";

fn browser() -> Option<PathBuf> {
    let names = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
    names.iter().map(Path::new).find(|p| p.exists()).map(Path::to_owned)
}

fn measured(browser: &Path, page: &str) -> serde_json::Value {
    let directory = std::env::temp_dir().join(format!("pindown-report-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let file = directory.join("report.html");
    std::fs::write(&file, page.replace("</body>", &format!("{MEASURE}</body>"))).expect("the page");
    let out = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom"])
        .args(["--window-size=500,900", "--virtual-time-budget=2000"])
        .arg(format!("--user-data-dir={}", directory.join("profile").display()))
        .arg(format!("file://{}", file.display()))
        .output()
        .expect("the browser starts");
    let dom = String::from_utf8_lossy(&out.stdout);
    let title = dom.split("<title>").nth(1).and_then(|t| t.split("</title>").next());
    let value = title.and_then(|t| serde_json::from_str(&t.replace("&quot;", "\"")).ok());
    std::fs::remove_dir_all(directory).ok();
    value.unwrap_or_else(|| panic!("the browser measured nothing: {}", String::from_utf8_lossy(&out.stderr)))
}

#[test]
fn a_phone_shows_all_of_it() {
    let Some(browser) = browser() else {
        return println!("skipped: no chromium here (apt install chromium)");
    };
    let trace = Scenario::named("storage").expect("in the suite").trace();
    let workload = Workload::compile(&trace[..60_000], None);
    let page = report::html("a trace", &workload, &advise(&workload, &mut |_| ()));
    let seen = measured(&browser, &page);
    let number = |name: &str| seen[name].as_f64().unwrap_or_else(|| panic!("{name}: {seen}"));
    assert!(number("page") <= number("window"), "the page is wider than the screen: {seen}");
    assert!(number("smallest") >= 10.0, "text too small to read: {seen}");
    assert!(number("charts") == 2.0 && number("narrowest") >= 300.0, "{seen}");
    assert!(number("rows") >= 20.0 && number("fetched") == 0.0, "{seen}");
    assert_eq!(seen["heading"], "How much memory to keep registered");
}
