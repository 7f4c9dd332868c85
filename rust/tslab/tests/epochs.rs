//! Rust's own collections in epochs, and what happens where a scope ends in an unusual way.

use std::collections::HashMap;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::thread;

#[global_allocator]
static ALLOCATOR: tslab::Allocator = tslab::Allocator;

fn open(label: &str) -> tslab::Epoch {
    tslab::Epoch::open(label).unwrap()
}

#[test]
fn collections_lie_in_the_epoch_and_outlive_it() {
    let batch = open("batch");
    let (kept, outside) = (
        batch.within(|| (0..1000).map(|n| (n, n.to_string())).collect::<HashMap<_, _>>()),
        vec![1u8; 99],
    );
    assert!(batch.holds(kept[&7].as_ptr()) && !batch.holds(outside.as_ptr()));
    assert!(tslab::owns(outside.as_ptr()));
    let report = batch.close().unwrap();
    assert_eq!(report.live_blocks, 1001);
    assert_eq!(kept[&999], "999");
}

#[test]
fn nothing_is_left_where_all_is_dropped() {
    let batch = open("empty");
    batch.within(|| drop(vec![String::from("gone"); 1000]));
    assert_eq!(batch.close().unwrap().live_blocks, 0);
}

#[test]
fn alignments_and_growth_keep_what_was_written() {
    #[repr(align(4096))]
    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Page([u8; 4096]);
    let mut pages = Vec::new();
    for n in 0..20u8 {
        pages.push(Page([n; 4096]));
        assert_eq!(pages.as_ptr() as usize % 4096, 0);
    }
    assert!(pages.iter().zip(0..).all(|(page, n)| page.0 == [n; 4096]));
    let mut bytes = Vec::new();
    (0..100_000u32).for_each(|n| bytes.push(n));
    assert!(bytes.iter().zip(0..).all(|(&byte, n)| byte == n));
    assert!(vec![0u8; 1 << 20].iter().all(|&byte| byte == 0));
}

#[test]
fn a_panic_leaves_the_scope() {
    let batch = open("panics");
    assert!(catch_unwind(AssertUnwindSafe(|| batch.within(|| panic!("on purpose")))).is_err());
    assert!(!batch.holds(vec![0u8; 77].as_ptr()));
    assert_eq!(batch.close().unwrap().threads_inside, 0);
}

#[test]
fn scopes_that_are_dropped_in_the_wrong_order_are_named() {
    thread::spawn(|| {
        let (outer, inner) = (open("outer"), open("inner"));
        let first = outer.enter().unwrap();
        let second = inner.enter().unwrap();
        let said = catch_unwind(AssertUnwindSafe(|| drop(first))).unwrap_err();
        assert!(said
            .downcast_ref::<String>()
            .unwrap()
            .contains("not this thread's innermost scope"));
        drop(second);
    })
    .join()
    .unwrap();
}

#[test]
fn threads_share_an_epoch() {
    let shared = open("shared");
    let kept: Vec<Box<u64>> = thread::scope(|scope| {
        let each: Vec<_> = (0..4)
            .map(|n| {
                scope.spawn({
                    let shared = &shared;
                    move || shared.within(|| Box::new(n))
                })
            })
            .collect();
        each.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(kept.iter().all(|block| shared.holds(&**block)));
    assert_eq!(shared.close().unwrap().live_blocks, 4);
}

#[test]
fn what_cannot_be_opened_is_an_error() {
    assert!(tslab::Epoch::open("with\0zero").is_err());
    assert!(tslab::Epoch::with_budget("tiny", 1).is_err());
}
