//! Declarations of `tslab/tslab.h`, as far as the crate `tslab` needs them. The header says what each does.
#![no_std]

use core::ffi::{c_char, c_int, c_void};

pub const TSLAB_EPOCH_DESTROYABLE: u32 = 2;

#[repr(C)]
pub struct EpochOptions {
    pub struct_size: usize,
    pub label: *const c_char,
    pub budget_bytes: u64,
    pub prefault_bytes: u64,
    pub flags: u32,
    pub parent: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EpochReport {
    pub epoch: u64,
    pub threads_inside: u64,
    pub live_blocks: u64,
    pub live_bytes: u64,
    pub slabs_pinned: u64,
    pub bytes_recycled: u64,
    pub bytes_returned: u64,
    pub rss_before: u64,
    pub rss_after: u64,
    pub elapsed_ns: u64,
    pub reserved: [u64; 6],
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlabUse {
    pub kind: u64,
    pub start: u64,
    pub epoch: u64,
    pub slab_bytes: u64,
    pub capacity_bytes: u64,
    pub used_blocks: u64,
    pub used_bytes: u64,
    pub is_current: u64,
    pub reserved: [u64; 8],
}

extern "C" {
    pub fn tslab_malloc(size: usize) -> *mut c_void;
    pub fn tslab_calloc(count: usize, size: usize) -> *mut c_void;
    pub fn tslab_realloc(block: *mut c_void, size: usize) -> *mut c_void;
    pub fn tslab_aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
    pub fn tslab_free(block: *mut c_void);
    pub fn tslab_owns(block: *const c_void) -> bool;
    pub fn tslab_occupancy(blocks: *const *mut c_void, count: usize, out: *mut SlabUse) -> c_int;
    pub fn tslab_purge() -> usize;
    pub fn tslab_version() -> *const c_char;
    pub fn tslab_epoch_open_with(options: *const EpochOptions) -> u64;
    pub fn tslab_epoch_enter(epoch: u64) -> c_int;
    pub fn tslab_epoch_leave(epoch: u64) -> c_int;
    pub fn tslab_epoch_current() -> u64;
    pub fn tslab_epoch_of(block: *const c_void) -> u64;
    pub fn tslab_epoch_move(block: *mut c_void, to: u64) -> *mut c_void;
    pub fn tslab_epoch_close(epoch: u64, out: *mut EpochReport) -> c_int;
}
