// SPDX-License-Identifier: GPL-2.0

//! Searches in lists that are sorted by key. Page faults call these functions, which have no panic
//! path.

/// Maximum number of processes or markers that a search visits without releasing the lock of the
/// list. If a visit to an element takes longer, the search has a lower limit.
pub const MAX_VISITS_PER_LOCK_HOLD: usize = 64;

/// The result of a search that visits a limited number of elements.
#[derive(Debug, PartialEq, Eq)]
pub enum LimitedSearch<T> {
    /// The search has found an element.
    Found(T),
    /// The search has not found the wanted element yet, and continues from this key on.
    From(u64),
    /// The search has reached the end of the list, and has not found the wanted element.
    End,
}

/// Searches a list that is sorted by key. Returns the index of the element with this key, or else
/// the index at which such an element must be inserted. Unlike `binary_search`, this function has
/// no panic path.
pub fn search<T>(all: &[T], key: u64, key_of: impl Fn(&T) -> u64) -> Result<usize, usize> {
    let (mut from, mut to) = (0usize, all.len());
    while from < to {
        let middle = from.wrapping_add(to.wrapping_sub(from) / 2);
        match all.get(middle).map(&key_of) {
            Some(found) if found == key => return Ok(middle),
            Some(found) if found < key => from = middle.wrapping_add(1),
            _ => to = middle,
        }
    }
    Err(from)
}

/// Searches a list that is sorted by key for the first element, with the key `from` or a higher
/// one, for which `wanted` returns a value. Visits at most `most` elements.
pub fn search_limited<T, R>(
    all: &[T],
    from: u64,
    most: usize,
    key_of: impl Fn(&T) -> u64,
    wanted: impl FnMut(&T) -> Option<R>,
) -> LimitedSearch<R> {
    let (Ok(at) | Err(at)) = search(all, from, &key_of);
    let mut rest = all.iter().skip(at);
    match rest.by_ref().take(most).find_map(wanted) {
        Some(found) => LimitedSearch::Found(found),
        None => rest
            .next()
            .map_or(LimitedSearch::End, |next| LimitedSearch::From(key_of(next))),
    }
}
