//! A global allocator, and epochs: named lifetimes whose memory lies together, is counted, and goes back at their end.
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: tslab::Allocator = tslab::Allocator;
//!
//! let batch = tslab::Epoch::open("batch").unwrap();
//! let kept = batch.within(|| {
//!     let _scratch = vec![0u8; 100_000];
//!     vec![1u8; 5_000]
//! });
//! let report = batch.close().unwrap();
//! assert_eq!((report.live_blocks, kept.len()), (1, 5_000)); // it stays valid
//! ```
//!
//! Without the global allocator epochs open and close, and hold nothing.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_void, CString};
use std::io;
use std::marker::PhantomData;

pub use tslab_sys::EpochReport as Report;

/// The alignment of every block of the library.
const ALIGNED: usize = 16;

/// The allocator, for `#[global_allocator]`.
pub struct Allocator;

// SAFETY: tslab_malloc and its family do what malloc's do: blocks are aligned to 16 bytes or as asked, and are not
// handed out twice.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = if layout.align() <= ALIGNED {
            tslab_sys::tslab_malloc(layout.size())
        } else {
            tslab_sys::tslab_aligned_alloc(layout.align(), layout.size())
        };
        block.cast()
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNED {
            return tslab_sys::tslab_calloc(1, layout.size()).cast();
        }
        let block = self.alloc(layout);
        if !block.is_null() {
            block.write_bytes(0, layout.size());
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        tslab_sys::tslab_free(block.cast());
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= ALIGNED {
            return tslab_sys::tslab_realloc(block.cast(), size).cast();
        }
        let moved = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
        if !moved.is_null() {
            moved.copy_from_nonoverlapping(block, layout.size().min(size));
            self.dealloc(block, layout);
        }
        moved
    }
}

/// A named lifetime. Blocks that outlive it stay valid; its memory goes back when the last of them is dropped.
///
/// Dropping an epoch closes it. There is no destroy here: the borrow checker does not see what an epoch holds.
#[derive(Debug)]
pub struct Epoch(u64);

impl Epoch {
    /// Fails for a label with a zero byte, and where there is no memory.
    pub fn open(label: &str) -> io::Result<Epoch> {
        Epoch::with_budget(label, 0)
    }

    /// Allocation in it fails past `budget` bytes, at least 64 KiB; 0 is none. A failing allocation ends most programs.
    pub fn with_budget(label: &str, budget: u64) -> io::Result<Epoch> {
        let label = CString::new(label).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let options = tslab_sys::EpochOptions {
            struct_size: std::mem::size_of::<tslab_sys::EpochOptions>(),
            label: label.as_ptr(),
            budget_bytes: budget,
            prefault_bytes: 0,
            flags: 0,
            parent: 0,
        };
        // SAFETY: `options` and the label outlive the call, which copies them.
        match unsafe { tslab_sys::tslab_epoch_open_with(&options) } {
            0 => Err(io::Error::last_os_error()),
            id => Ok(Epoch(id)),
        }
    }

    /// Runs `work` with this thread inside. A panic leaves the scope, too. Do not await in it: other tasks would be inside.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        let _scope = self
            .enter()
            .unwrap_or_else(|error| panic!("{self:?} cannot be entered: {error}"));
        work()
    }

    /// This thread is inside until the guard is dropped. Guards are dropped in the reverse order, or the drop panics.
    pub fn enter(&self) -> io::Result<Scope<'_>> {
        // SAFETY: any id may be passed.
        check(unsafe { tslab_sys::tslab_epoch_enter(self.0) })?;
        Ok(Scope {
            epoch: self,
            here: PhantomData,
        })
    }

    /// Returns true if the block at `at` was allocated in this epoch.
    pub fn holds<T: ?Sized>(&self, at: *const T) -> bool {
        // SAFETY: any value may be asked about.
        unsafe { tslab_sys::tslab_epoch_of(at.cast::<c_void>()) == self.0 }
    }

    /// Closes it, and tells what outlived it.
    pub fn close(self) -> io::Result<Report> {
        let mut report = Report::default();
        // SAFETY: `report` outlives the call.
        let closed = check(unsafe { tslab_sys::tslab_epoch_close(self.0, &mut report) });
        std::mem::forget(self);
        closed.map(|()| report)
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        // SAFETY: any id may be passed, and no report is asked for.
        unsafe { tslab_sys::tslab_epoch_close(self.0, std::ptr::null_mut()) };
    }
}

/// A scope of this thread. It is not Send: the thread that entered leaves.
#[must_use = "the scope ends when this is dropped"]
#[derive(Debug)]
pub struct Scope<'a> {
    epoch: &'a Epoch,
    here: PhantomData<*const ()>,
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        // SAFETY: any id may be passed.
        let left = check(unsafe { tslab_sys::tslab_epoch_leave(self.epoch.0) });
        if left.is_err() && !std::thread::panicking() {
            panic!(
                "{:?} is not this thread's innermost scope: drop scopes in the reverse order",
                self.epoch
            );
        }
    }
}

/// Gives every byte of unused memory back to the operating system. Returns how many.
pub fn purge() -> usize {
    // SAFETY: no precondition.
    unsafe { tslab_sys::tslab_purge() }
}

/// Returns true if the block at `at` comes from this allocator.
pub fn owns<T: ?Sized>(at: *const T) -> bool {
    // SAFETY: any value may be asked about.
    unsafe { tslab_sys::tslab_owns(at.cast()) }
}

fn check(error: i32) -> io::Result<()> {
    if error == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(error))
    }
}
