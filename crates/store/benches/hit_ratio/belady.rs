//! Belady's limit: what is asked for last of all goes. It knows the future, and must take every
//! block it is asked for, as libCacheSim's does; a policy that may pass a block by could do a
//! little better.

use std::collections::BTreeSet;

/// Hits of a cache of `size` blocks.
pub(crate) fn hits(requests: &[u32], blocks: usize, size: usize) -> u64 {
    let mut next_of = vec![u32::MAX; requests.len()];
    let mut seen = vec![u32::MAX; blocks];
    for (at, block) in requests.iter().enumerate().rev() {
        next_of[at] = seen[*block as usize];
        seen[*block as usize] = at as u32;
    }
    // By the next request, and the block for those that have none.
    let mut held = BTreeSet::new();
    let mut due = vec![None; blocks];
    let mut hits = 0;
    for (at, block) in requests.iter().enumerate() {
        if let Some(next) = due[*block as usize] {
            hits += 1;
            held.remove(&(next, *block));
        } else if held.len() >= size
            && let Some((_, gone)) = held.pop_last()
        {
            due[gone as usize] = None;
        }
        held.insert((next_of[at], *block));
        due[*block as usize] = Some(next_of[at]);
    }
    hits
}
