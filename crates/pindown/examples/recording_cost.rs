//! What recording adds to a hit: run it as it is, and with `PINDOWN_TRACE=/tmp/x.trace`.

use std::time::{Duration, Instant};

use pindown::provider::sim::Sim;
use pindown::{Access, Builder, MonitorChoice};

/// Few enough for the queue: then the writer is given time.
const BURST: u32 = 16_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cache = Builder::new(Sim::new()).monitor(MonitorChoice::Manual).build()?;
    let memory = vec![0u8; 1 << 20];
    let mut best = Duration::MAX;
    for _ in 0..20 {
        let begin = Instant::now();
        for _ in 0..BURST {
            // SAFETY: the simulated device moves nothing.
            drop(unsafe { cache.acquire(memory.as_ptr(), 65536, Access::READ) }?);
        }
        best = best.min(begin.elapsed());
        std::thread::sleep(Duration::from_millis(50));
    }
    println!(
        "{:.1} ns an acquire and put; {:?} events dropped",
        best.as_nanos() as f64 / f64::from(BURST),
        pindown::trace::dropped()
    );
    Ok(())
}
