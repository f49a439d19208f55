//! A sequence: a tree of words whose inner nodes count what is below them. Elements are found by
//! their place; who keeps them sorted finds places by halving. A list and a sorted set have one.
//!
//! It is made of words of the heap, so a change of it is part of the transaction like any other. A
//! node is a slot of 512 bytes; its layout is in [`crate::format`]. Elements are written from the
//! side where there is room: a push at either end moves nothing, and an end that is full gets a new
//! node for itself, so that queues keep their nodes full.

use super::Keyspace;
use crate::format::{SEQUENCE, TREE_NODE, TREE_WORDS, TreeHead};
use crate::heap::{Damage, Full};
use crate::planted::Planted;

/// Levels of which no tree has so many.
const LEVELS_MAX: u64 = 12;

/// A new node beside one that was full.
struct Split {
    /// The new node goes before the old one.
    before: bool,
    new: u64,
    new_count: u64,
    old_count: u64,
}

/// What one item of a node takes: an element, or a child with its count.
fn width(level: u64) -> u64 {
    if level == 0 { 1 } else { 2 }
}

/// Items that a node has room for.
fn capacity(level: u64) -> u64 {
    TREE_WORDS / width(level)
}

impl Keyspace {
    fn tree_head(&self, node: u64) -> TreeHead {
        let head = TreeHead::decode(self.heap.word(node));
        let fits = head.level <= LEVELS_MAX && head.first + head.items <= capacity(head.level);
        if node != 0 && fits && head.items > 0 {
            return head;
        }
        self.heap.note(Damage::Structure(format!("no node of a sequence can be at {node}")));
        TreeHead { level: 0, first: 0, items: 0 }
    }

    fn set_head(&mut self, node: u64, head: TreeHead) {
        self.heap.set(node, head.encode());
    }

    /// Where item `number` of a node is.
    fn item_at(node: u64, head: TreeHead, number: u64) -> u64 {
        node + 8 + (head.first + number) * width(head.level) * 8
    }

    /// A child and how many elements are below it.
    fn child(&self, node: u64, head: TreeHead, number: u64) -> (u64, u64) {
        let at = Keyspace::item_at(node, head, number);
        (self.heap.word(at), self.heap.word(at + 8))
    }

    /// Elements of the node: its own, or those below it.
    fn count_of(&self, node: u64, head: TreeHead) -> u64 {
        match head.level {
            0 => head.items,
            _ => (0..head.items).fold(0, |all, n| all.saturating_add(self.child(node, head, n).1)),
        }
    }

    /// The child that element `place` is below, and its place there. `behind`: also the place
    /// behind a child's last element is in it.
    fn child_of(&self, node: u64, head: TreeHead, place: u64, behind: bool) -> (u64, u64) {
        let mut rest = place;
        for number in 0..head.items {
            let (_, count) = self.child(node, head, number);
            if rest < count || behind && rest == count {
                return (number, rest);
            }
            rest -= count;
        }
        self.heap.note(Damage::Structure(format!(
            "the sequence at {node} has fewer elements than it says"
        )));
        (head.items.saturating_sub(1), 0)
    }

    /// The child at `number`, if it is one level lower: a damaged tree must have an end.
    fn below(&self, node: u64, head: TreeHead, number: u64) -> Option<(u64, TreeHead)> {
        let (child, _) = self.child(node, head, number);
        let found = self.tree_head(child);
        if found.items == 0 || found.level + 1 != head.level {
            self.heap.note(Damage::Structure(format!(
                "the sequence's node at {node} has a wrong child"
            )));
            return None;
        }
        Some((child, found))
    }

    fn new_tree_node(&mut self, level: u64, first: u64) -> Result<(u64, TreeHead), Full> {
        Ok((self.heap.alloc_slot(TREE_NODE)?, TreeHead { level, first, items: 0 }))
    }

    /// Moves items `from..to` of a node by `by` places.
    fn move_items(&mut self, node: u64, head: TreeHead, from: u64, to: u64, by: i64) {
        let words = width(head.level);
        let (begin, end) = ((head.first + from) * words, (head.first + to) * words);
        let shift = by * words as i64;
        let mut one = |word: u64| {
            let value = self.heap.word(node + 8 + word * 8);
            self.heap.set(node + 8 + word.wrapping_add_signed(shift) * 8, value);
        };
        if by > 0 { (begin..end).rev().for_each(&mut one) } else { (begin..end).for_each(&mut one) }
    }

    /// Puts an item into a node that has room for it.
    fn put_item(&mut self, node: u64, mut head: TreeHead, number: u64, item: [u64; 2]) {
        let room_behind = head.first + head.items < capacity(head.level);
        if room_behind && (head.first == 0 || number * 2 >= head.items) {
            self.move_items(node, head, number, head.items, 1);
        } else {
            self.move_items(node, head, 0, number, -1);
            head.first -= 1;
        }
        head.items += 1;
        let at = Keyspace::item_at(node, head, number);
        for word in 0..width(head.level) {
            self.heap.set(at + word * 8, item[word as usize]);
        }
        self.set_head(node, head);
    }

    /// Takes an item out of a node.
    fn take_item(&mut self, node: u64, mut head: TreeHead, number: u64) -> TreeHead {
        if number * 2 >= head.items {
            self.move_items(node, head, number + 1, head.items, -1);
        } else {
            self.move_items(node, head, 0, number, 1);
            head.first += 1;
        }
        head.items -= 1;
        self.set_head(node, head);
        head
    }

    /// Puts an item into a node, which may need a second one for it.
    fn add_item(
        &mut self,
        node: u64,
        head: TreeHead,
        number: u64,
        item: [u64; 2],
    ) -> Result<Option<Split>, Full> {
        if head.items < capacity(head.level) {
            self.put_item(node, head, number, item);
            return Ok(None);
        }
        let before = number == 0;
        let first = if before { capacity(head.level) } else { 0 };
        let (new, mut new_head) = self.new_tree_node(head.level, first)?;
        if before || number == head.items {
            self.put_item(new, new_head, 0, item);
            new_head.items = 1;
            new_head.first -= u64::from(before);
        } else {
            let stay = head.items / 2;
            let words = width(head.level);
            for word in 0..(head.items - stay) * words {
                let value = self.heap.word(Keyspace::item_at(node, head, stay) + word * 8);
                self.heap.set(new + 8 + word * 8, value);
            }
            new_head.items = head.items - stay;
            let old_head = TreeHead { items: stay, ..head };
            self.set_head(new, new_head);
            self.set_head(node, old_head);
            if number <= stay {
                self.put_item(node, old_head, number, item);
            } else {
                self.put_item(new, new_head, number - stay, item);
            }
            new_head = self.tree_head(new);
        }
        let head = self.tree_head(node);
        let (new_count, old_count) = (self.count_of(new, new_head), self.count_of(node, head));
        Ok(Some(Split { before, new, new_count, old_count }))
    }

    fn insert_below(&mut self, node: u64, place: u64, element: u64) -> Result<Option<Split>, Full> {
        let head = self.tree_head(node);
        if head.level == 0 {
            return self.add_item(node, head, place.min(head.items), [element, 0]);
        }
        let (number, rest) = self.child_of(node, head, place, true);
        let Some((child, _)) = self.below(node, head, number) else { return Ok(None) };
        let split = self.insert_below(child, rest, element)?;
        let count_at = Keyspace::item_at(node, head, number) + 8;
        let Some(split) = split else {
            self.heap.add(count_at, 1);
            return Ok(None);
        };
        self.heap.set(count_at, split.old_count);
        if self.heap.planted().is(Planted::NodeSplitInTwo) {
            self.heap.commit();
        }
        let number = if split.before { number } else { number + 1 };
        self.add_item(node, head, number, [split.new, split.new_count])
    }

    /// Puts an element at a place of the sequence of the node at `base`.
    pub(super) fn insert_element(
        &mut self,
        base: u64,
        place: u64,
        element: u64,
    ) -> Result<(), Full> {
        let root = self.heap.word(base + SEQUENCE);
        if root == 0 {
            let (leaf, head) = self.new_tree_node(0, TREE_WORDS / 2)?;
            self.put_item(leaf, head, 0, [element, 0]);
            self.heap.set(base + SEQUENCE, leaf);
            return Ok(());
        }
        if let Some(split) = self.insert_below(root, place, element)? {
            if self.heap.planted().is(Planted::NodeSplitInTwo) {
                self.heap.commit();
            }
            let level = self.tree_head(root).level + 1;
            let (new, head) = self.new_tree_node(level, capacity(level) / 2)?;
            let mut items = [[root, split.old_count], [split.new, split.new_count]];
            if split.before {
                items.swap(0, 1);
            }
            self.put_item(new, head, 0, items[0]);
            let head = TreeHead { items: 1, ..head };
            self.put_item(new, head, 1, items[1]);
            self.heap.set(base + SEQUENCE, new);
        }
        Ok(())
    }

    /// Takes an element out below `node`; returns it, and whether the node is empty now.
    fn remove_below(&mut self, node: u64, place: u64) -> (u64, bool) {
        let head = self.tree_head(node);
        if head.items == 0 {
            return (0, false);
        }
        if head.level == 0 {
            let place = place.min(head.items - 1);
            let element = self.heap.word(Keyspace::item_at(node, head, place));
            return (element, self.take_item(node, head, place).items == 0);
        }
        let (number, rest) = self.child_of(node, head, place, false);
        let Some((child, _)) = self.below(node, head, number) else { return (0, false) };
        let (element, empty) = self.remove_below(child, rest);
        if empty {
            self.heap.free_slot(child, TREE_NODE);
            return (element, self.take_item(node, head, number).items == 0);
        }
        self.heap.add(Keyspace::item_at(node, head, number) + 8, -1);
        let left = if number + 1 < head.items { number } else { number.saturating_sub(1) };
        if left + 1 < head.items {
            self.join(node, head, left);
        }
        (element, false)
    }

    /// Makes one child of two that have few items.
    fn join(&mut self, node: u64, head: TreeHead, left: u64) {
        let found = (self.below(node, head, left), self.below(node, head, left + 1));
        let (Some((to, mut to_head)), Some((from, from_head))) = found else { return };
        if to_head.items + from_head.items > capacity(to_head.level) / 2 {
            return;
        }
        for number in 0..from_head.items {
            let (one, other) = self.child(from, from_head, number);
            // Of a leaf the second word is the next element, which is left alone.
            self.put_item(to, to_head, to_head.items, [one, other]);
            to_head = self.tree_head(to);
        }
        self.heap.free_slot(from, TREE_NODE);
        let counts = (self.child(node, head, left).1, self.child(node, head, left + 1).1);
        self.heap.set(Keyspace::item_at(node, head, left) + 8, counts.0 + counts.1);
        self.take_item(node, head, left + 1);
    }

    /// Takes an element out of the sequence of the node at `base`, and returns it.
    pub(super) fn remove_element(&mut self, base: u64, place: u64) -> u64 {
        let root = self.heap.word(base + SEQUENCE);
        let (element, empty) = self.remove_below(root, place);
        if empty {
            self.heap.free_slot(root, TREE_NODE);
            self.heap.set(base + SEQUENCE, 0);
            return element;
        }
        let head = self.tree_head(root);
        if head.level > 0 && head.items == 1 {
            let (child, _) = self.child(root, head, 0);
            self.heap.free_slot(root, TREE_NODE);
            self.heap.set(base + SEQUENCE, child);
        }
        element
    }

    /// How many elements come before the first for which `before` does not hold; it holds for all
    /// up to some element, and for none from there on.
    pub(super) fn partition(&self, base: u64, before: impl Fn(u64) -> bool) -> u64 {
        let mut node = self.heap.word(base + SEQUENCE);
        if node == 0 {
            return 0;
        }
        let mut head = self.tree_head(node);
        let mut rank = 0;
        while head.level > 0 {
            // The last child whose first element comes before has the border in it.
            let (mut low, mut high) = (0, head.items);
            while low < high {
                let middle = (low + high) / 2;
                match self.first_below(node, head, middle) {
                    Some(first) if before(first) => low = middle + 1,
                    Some(_) => high = middle,
                    None => return 0,
                }
            }
            let number = low.saturating_sub(1);
            let skipped = (0..number).map(|n| self.child(node, head, n).1);
            rank = skipped.fold(rank, u64::saturating_add);
            let Some(child) = self.below(node, head, number) else { return 0 };
            (node, head) = child;
        }
        let (mut low, mut high) = (0, head.items);
        while low < high {
            let middle = (low + high) / 2;
            if before(self.heap.word(Keyspace::item_at(node, head, middle))) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        rank + low
    }

    /// The first element below child `number`.
    fn first_below(&self, node: u64, head: TreeHead, number: u64) -> Option<u64> {
        let (mut node, mut head) = self.below(node, head, number)?;
        while head.level > 0 {
            (node, head) = self.below(node, head, 0)?;
        }
        Some(self.heap.word(Keyspace::item_at(node, head, 0)))
    }

    /// Where the word of an element is.
    pub(super) fn element_at(&self, base: u64, place: u64) -> Option<u64> {
        let mut node = self.heap.word(base + SEQUENCE);
        let (mut head, mut rest) = (self.tree_head(node), place);
        while head.level > 0 {
            let (number, next) = self.child_of(node, head, rest, false);
            (node, head) = self.below(node, head, number)?;
            rest = next;
        }
        (rest < head.items).then(|| Keyspace::item_at(node, head, rest))
    }

    /// How many elements the sequence of the node at `base` has.
    pub(super) fn sequence_len(&self, base: u64) -> u64 {
        match self.heap.word(base + SEQUENCE) {
            0 => 0,
            root => self.count_of(root, self.tree_head(root)),
        }
    }

    /// Where the word of the last element is.
    pub(super) fn last_element(&self, base: u64) -> Option<u64> {
        let mut node = self.heap.word(base + SEQUENCE);
        if node == 0 {
            return None;
        }
        let mut head = self.tree_head(node);
        while head.level > 0 {
            (node, head) = self.below(node, head, head.items - 1)?;
        }
        let last = head.items.checked_sub(1)?;
        Some(Keyspace::item_at(node, head, last))
    }

    /// Elements from a place on, until `each` says that it has enough.
    pub(super) fn for_elements(&self, base: u64, from: u64, mut each: impl FnMut(u64) -> bool) {
        let root = self.heap.word(base + SEQUENCE);
        if root != 0 {
            self.elements_below(root, self.tree_head(root), from, &mut each);
        }
    }

    fn elements_below(
        &self,
        node: u64,
        head: TreeHead,
        from: u64,
        each: &mut impl FnMut(u64) -> bool,
    ) -> bool {
        if head.level == 0 {
            return (from..head.items)
                .all(|n| each(self.heap.word(Keyspace::item_at(node, head, n))));
        }
        let mut skip = from;
        (0..head.items).all(|number| {
            let (_, count) = self.child(node, head, number);
            if skip >= count {
                skip -= count;
                return true;
            }
            let from = std::mem::take(&mut skip);
            let Some((child, child_head)) = self.below(node, head, number) else { return false };
            self.elements_below(child, child_head, from, each)
        })
    }

    /// Frees the last leaf of the sequence of the node at `base`, and what becomes empty with it;
    /// returns its elements.
    pub(super) fn free_last_leaf(&mut self, base: u64) -> Vec<u64> {
        let mut path = Vec::new();
        let mut node = self.heap.word(base + SEQUENCE);
        let mut head = self.tree_head(node);
        while head.level > 0 {
            path.push((node, head));
            let Some(child) = self.below(node, head, head.items - 1) else { return Vec::new() };
            (node, head) = child;
        }
        let elements =
            (0..head.items).map(|n| self.heap.word(Keyspace::item_at(node, head, n))).collect();
        self.heap.free_slot(node, TREE_NODE);
        while let Some((node, head)) = path.pop() {
            if head.items > 1 {
                self.set_head(node, TreeHead { items: head.items - 1, ..head });
                return elements;
            }
            self.heap.free_slot(node, TREE_NODE);
        }
        self.heap.set(base + SEQUENCE, 0);
        elements
    }
}
