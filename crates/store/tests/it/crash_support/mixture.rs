//! Bytes that were found against those that were expected: where they differ first, and whether
//! they are a mixture that a cut may leave.

use super::Grain;

pub(super) fn difference(expected: &[u8], found: &[u8]) -> String {
    let at = expected.iter().zip(found).position(|(a, b)| a != b);
    match at {
        Some(at) => format!(
            "byte {at} (block {}) is {:#x}, expected {:#x}; sizes {} and {}",
            at / 4096,
            found[at],
            expected[at],
            found.len(),
            expected.len()
        ),
        None => format!("size {}, expected {}", found.len(), expected.len()),
    }
}

pub(super) fn mixture(found: &[u8], a: &[u8], b: &[u8], grain: Grain) -> Result<(), String> {
    if let Grain::Block(size) = grain
        && found.len() > a.len()
        && found.len() < b.len()
        && found.len().is_multiple_of(size)
    {
        // A write that had to wait for room: its first blocks are the file's already.
        let so_far = &b[..found.len()];
        return if found == so_far {
            Ok(())
        } else {
            Err(format!("grown, but {}", difference(so_far, found)))
        };
    }
    if found.len() != a.len() && found.len() != b.len() {
        return Err(format!("size {}, before {} and after {}", found.len(), a.len(), b.len()));
    }
    let step = match grain {
        Grain::Ranged(size) if found.len() == a.len() => size,
        Grain::Ranged(_) => {
            return if found == b {
                Ok(())
            } else {
                Err(format!("new size, but {}", difference(b, found)))
            };
        }
        Grain::Block(size) => {
            if found.len() != a.len() {
                // The size is the last thing to change.
                return if found == b {
                    Ok(())
                } else {
                    Err(format!("new size, but {}", difference(b, found)))
                };
            }
            size
        }
        _ => 8,
    };
    for at in (0..found.len()).step_by(step) {
        let end = (at + step).min(found.len());
        let here = &found[at..end];
        if !is_piece(here, a, at) && !is_piece(here, b, at) {
            return Err(format!("bytes {at}..{end} are neither old nor new"));
        }
    }
    Ok(())
}

/// Whether `bytes` has `piece` at `at`; past its end there are zeros.
pub(super) fn is_piece(piece: &[u8], bytes: &[u8], at: usize) -> bool {
    let there = bytes.get(at..).unwrap_or_default();
    let (inside, past) = piece.split_at(there.len().min(piece.len()));
    *inside == there[..inside.len()] && past.iter().all(|b| *b == 0)
}
