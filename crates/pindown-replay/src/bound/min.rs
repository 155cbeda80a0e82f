//! Belady's MIN for things of one size.

use std::collections::BinaryHeap;

const NEVER: u32 = u32::MAX;

/// Misses of the best policy with room for `room` things, all of which must be let in.
pub(super) fn misses(previous: &[Option<u32>], room: u64) -> u64 {
    if room == 0 {
        return previous.len() as u64;
    }
    let mut next = vec![NEVER; previous.len()];
    for (at, before) in previous.iter().enumerate() {
        if let Some(before) = before {
            next[*before as usize] = at as u32;
        }
    }
    // What is never used again (or not before it changes) takes no room. The heap holds next uses,
    // farthest first; those that have passed are of what was used, and re-entered, since.
    let mut kept = vec![false; previous.len()];
    let mut farthest = BinaryHeap::new();
    let (mut resident, mut misses) = (0, 0);
    for at in 0..previous.len() {
        let hit = std::mem::take(&mut kept[at]);
        misses += u64::from(!hit);
        resident -= u64::from(hit);
        if resident >= room {
            // The thing itself is in while it is used.
            resident -= drop_farthest(&mut farthest, &mut kept, at);
        }
        if next[at] != NEVER {
            farthest.push(next[at]);
            kept[next[at] as usize] = true;
            resident += 1;
        }
    }
    misses
}

fn drop_farthest(farthest: &mut BinaryHeap<u32>, kept: &mut [bool], now: usize) -> u64 {
    while let Some(next) = farthest.pop() {
        if next as usize > now && std::mem::take(&mut kept[next as usize]) {
            return 1;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn previous(objects: &[usize]) -> Vec<Option<u32>> {
        let find = |at: usize| objects[..at].iter().rposition(|o| *o == objects[at]);
        (0..objects.len()).map(|at| find(at).map(|p| p as u32)).collect()
    }

    /// All ways to serve the requests, tried out.
    fn brute(objects: &[usize], room: usize) -> u64 {
        fn go(objects: &[usize], cache: &mut Vec<usize>, room: usize) -> u64 {
            let Some((first, rest)) = objects.split_first() else { return 0 };
            if cache.contains(first) {
                return go(rest, cache, room);
            }
            if cache.len() < room {
                cache.push(*first);
                let cost = 1 + go(rest, cache, room);
                cache.pop();
                return cost;
            }
            let swap = |at: usize| {
                let mut cache = cache.clone();
                cache[at] = *first;
                1 + go(rest, &mut cache, room)
            };
            (0..room).map(swap).min().unwrap()
        }
        go(objects, &mut Vec::new(), room)
    }

    #[test]
    fn equals_brute_force() {
        let mut rng = crate::rng::Rng::new(7);
        for _ in 0..300 {
            let objects: Vec<_> = (0..10).map(|_| rng.below(5) as usize).collect();
            for room in 1..4 {
                assert_eq!(
                    misses(&previous(&objects), room as u64),
                    brute(&objects, room),
                    "{objects:?} {room}"
                );
            }
        }
    }
}
