//! The Lagrangian bound for things of several sizes and costs.

/// One request: what is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) size: f64,
    pub(super) value: f64,
}

const STRETCHES: usize = 1024;
const ROUNDS: usize = 60;

/// Least total value of the requests that must miss, given `room`.
pub(super) fn bound(items: &[Item], previous: &[Option<u32>], room: f64) -> f64 {
    let dual = Dual::new(items, previous, room);
    let uniform = dual.best_uniform();
    dual.improve(vec![uniform; dual.stretches()])
}

struct Dual<'a> {
    items: &'a [Item],
    previous: &'a [Option<u32>],
    /// Requests in a stretch of one price.
    stretch: usize,
    /// By stretch: room for others than what is being used, summed over its requests.
    room: Vec<f64>,
    total: f64,
}

/// The dual's value and, by stretch, how much of the room the gaps worth keeping take.
struct Valued {
    bound: f64,
    taken: Vec<f64>,
}

impl<'a> Dual<'a> {
    fn new(items: &'a [Item], previous: &'a [Option<u32>], room: f64) -> Self {
        let stretch = items.len().div_ceil(STRETCHES).max(1);
        let beside = |i: &Item| (room - i.size).max(0.0);
        let room = items.chunks(stretch).map(|c| c.iter().map(beside).sum()).collect();
        Self { items, previous, stretch, room, total: items.iter().map(|i| i.value).sum() }
    }

    fn stretches(&self) -> usize {
        self.room.len()
    }

    fn value(&self, prices: &[f64]) -> Valued {
        let until = self.prefix(prices);
        let mut saved = 0.0;
        let mut change = vec![0.0; self.items.len() + 1];
        for (at, before) in self.previous.iter().enumerate() {
            let Some(begin) = before.map(|b| b as usize + 1) else { continue };
            let item = self.items[at];
            let gain = item.value - item.size * (until[at] - until[begin]);
            if gain > 0.0 {
                saved += gain;
                change[begin] += item.size;
                change[at] -= item.size;
            }
        }
        let paid: f64 = prices.iter().zip(&self.room).map(|(p, r)| p * r).sum();
        Valued { bound: self.total - paid - saved, taken: self.taken(&change) }
    }

    /// Price of all requests before each.
    fn prefix(&self, prices: &[f64]) -> Vec<f64> {
        let mut sum = 0.0;
        let mut until = Vec::with_capacity(self.items.len() + 1);
        for at in 0..self.items.len() {
            until.push(sum);
            sum += prices[at / self.stretch];
        }
        until.push(sum);
        until
    }

    fn taken(&self, change: &[f64]) -> Vec<f64> {
        let mut taken = vec![0.0; self.stretches()];
        let mut now = 0.0;
        for (at, c) in change[..self.items.len()].iter().enumerate() {
            now += c;
            taken[at / self.stretch] += now;
        }
        taken
    }

    /// The best of geometrically spaced single prices.
    fn best_uniform(&self) -> f64 {
        let scale = self.total / self.room.iter().sum::<f64>().max(1.0);
        let tried = (-12..=12).map(|k| scale * 2f64.powi(k));
        let valued = tried.map(|p| (self.value(&vec![p; self.stretches()]).bound, p));
        valued.max_by(|a, b| a.0.total_cmp(&b.0)).map_or(0.0, |(_, p)| p)
    }

    /// Raises prices where more is taken than there is, lowers them where less; keeps the best bound.
    fn improve(&self, mut prices: Vec<f64>) -> f64 {
        let must: f64 =
            self.items.iter().zip(self.previous).filter(|(_, p)| p.is_none()).map(|(i, _)| i.value).sum();
        let mut best = must;
        for round in 0..ROUNDS {
            let valued = self.value(&prices);
            best = best.max(valued.bound);
            let step = 0.5 / (1.0 + round as f64 / 8.0);
            for (price, (taken, room)) in prices.iter_mut().zip(valued.taken.iter().zip(&self.room)) {
                let excess = (taken / room.max(1.0) - 1.0).clamp(-1.0, 1.0);
                *price *= (step * excess).exp();
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::min;
    use crate::rng::{Rng, Zipf};

    #[test]
    fn is_below_min_and_close_to_it_on_equal_things() {
        let (mut rng, zipf) = (Rng::new(3), Zipf::new(500, 0.8));
        let mut last = vec![None; 500];
        let previous: Vec<_> = (0..20_000).map(|at| last[zipf.draw(&mut rng)].replace(at as u32)).collect();
        let items = vec![Item { size: 1.0, value: 1.0 }; previous.len()];
        for room in [50, 150, 400] {
            let (exact, dual) = (min::misses(&previous, room) as f64, bound(&items, &previous, room as f64));
            assert!(dual <= exact + 1e-6, "{room}: {dual} > {exact}");
            assert!(dual >= 0.9 * exact, "{room}: {dual} << {exact}");
        }
    }
}
