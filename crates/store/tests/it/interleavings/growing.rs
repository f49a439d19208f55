//! Map pages that are made, and files that are cut, while others look.

use super::*;

#[test]
fn the_first_writers_of_a_map_page_agree_on_one() {
    // `FileMap::make_leaf` twice: what the medium points to in the end is what everybody uses.
    prove("map pages", u32::MAX, &[Flaw::PagesLetGoEarly], |scene, flaw| {
        let (pages, link, leaf) = (scene.word(0), scene.word(0), scene.word(0));
        for page in [1, 2] {
            scene.thread(move |t| async move {
                if t.load(leaf, Acquire).await != 0 {
                    return;
                }
                t.lock(pages).await;
                if t.load(leaf, Acquire).await == 0 {
                    t.store(link, page, Release).await;
                    if flaw == Flaw::PagesLetGoEarly {
                        t.unlock(pages).await;
                    }
                    // Who is second keeps the first one's (`OnceLock::get_or_init`).
                    let _ =
                        t.modify(leaf, (Acquire, Release), |now| (now == 0).then_some(page)).await;
                    if flaw == Flaw::PagesLetGoEarly {
                        return;
                    }
                }
                t.unlock(pages).await;
            });
        }
        scene.observer(move |t| async move {
            let used = t.newest(leaf);
            t.check(used == t.newest(link), || {
                format!("page {used} is used, the medium points to another")
            });
        });
    });
}

#[test]
fn a_read_during_a_cut_never_shows_what_home_had_before_the_block_was_written() {
    prove("cuts", u32::MAX, &[Flaw::OldSize], |scene, flaw| {
        let store = Store::new(scene, flaw);
        let (cutter, reader) = (store.clone(), store);
        scene.thread(move |t| async move {
            // Home has an older version; then the file is cut and grows again.
            for word in cutter.home {
                t.store(word, stamp(0, 7), Release).await;
            }
            cutter.write(&t, 0).await;
            t.store(cutter.size, 0, Release).await;
            t.modify(cutter.evictions, (Acquire, Release), |n| Some(n + 1)).await.unwrap();
            cutter.replace(&t, DIRTY + 1, HOME).await;
            for word in cutter.home {
                t.store(word, 0, Release).await;
            }
            t.store(cutter.size, 1, Release).await;
        });
        scene.observer(move |t| async move {
            let written = t.load(reader.acked, Acquire).await;
            if written == 0 || t.load(reader.size, Acquire).await == 0 {
                return;
            }
            if let Some((found, _)) = reader.read_home(&t).await {
                t.check(found == 0, || format!("version {found} comes back from home"));
            }
        });
    });
}
