/* offcut.h: the public C interface of liboffcut.so, and the only header that anything outside
 * includes (with the list of counters that it draws in).
 *
 * Promises: needs neither PyTorch nor a GPU to be loaded; CUDA is loaded at the first call that
 * needs it. Every function may be called from any thread, with or without a current CUDA context,
 * and leaves the caller's context as it was. Nothing here throws. No pointer given out needs
 * freeing; strings live as long as their function says.
 *
 * Sizes are bytes. `device` is CUDA's ordinal in this process. `stream` NULL is the legacy default
 * stream.
 *
 * Environment, read once at the first call of offcut_init or of a function that needs a device:
 *   OFFCUT_CONF     options, in PyTorch's grammar (see `offcut options`)
 *   OFFCUT_RECORD   a directory: record every event into DIR/<UTC start>-<host>-<pid>/
 */
#ifndef OFFCUT_ALLOCATOR_OFFCUT_H_
#define OFFCUT_ALLOCATOR_OFFCUT_H_

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define OFFCUT_VERSION "0.1.0"

#if defined(__GNUC__)
#define OFFCUT_API __attribute__((visibility("default")))
#else
#define OFFCUT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CUstream_st* offcut_stream; /* cudaStream_t and CUstream */

/* What a call says of its outcome. On anything but OFFCUT_OK, offcut_last_error() tells more. */
typedef enum offcut_status {
  OFFCUT_OK = 0,
  OFFCUT_OUT_OF_MEMORY = 1, /* memory, or the limit, is used up: see offcut_out_of_memory_report */
  OFFCUT_INVALID_ARGUMENT = 2, /* a device, pointer or value that makes no sense */
  OFFCUT_NO_DRIVER = 3,        /* no CUDA driver, or no device, on this machine */
  OFFCUT_NOT_SUPPORTED = 4,    /* a layout or feature that is not built yet, named in the error */
  OFFCUT_WRONG_STATE = 5,      /* the call does not fit what went before, as the error says */
  OFFCUT_DRIVER_ERROR = 6,     /* CUDA failed for another reason, named in the error */
  OFFCUT_CALLBACK_FAILED =
      7, /* a filter of offcut_begin_allocate_to_pool, or a foreign allocator */
} offcut_status;

/* The calling thread's last error: its first line says what was wrong, more lines may follow. "" if
 * there was none. Valid until the thread's next call into this library. */
OFFCUT_API const char* offcut_last_error(void);

/* OFFCUT_VERSION of the library that is loaded. */
OFFCUT_API const char* offcut_version(void);

/* ---- Start ------------------------------------------------------------------------------------
 */

/* Reads the options (see above) and starts the recording if one is asked for; does not touch CUDA.
 * Calling it is optional and safe to repeat: the first call decides. A bad option or an unusable
 * record directory is reported once on stderr and through offcut_last_error, with
 * OFFCUT_INVALID_ARGUMENT, and the library goes on with the defaults or without a recording. A
 * layout that is not built yet is OFFCUT_NOT_SUPPORTED, and every later allocation fails with it.
 */
OFFCUT_API offcut_status offcut_init(void);

/* All options with value, origin and meaning, as a JSON array. Valid for the process's life. */
OFFCUT_API const char* offcut_options_json(void);

/* ---- For torch.cuda.memory.CUDAPluggableAllocator ----------------------------------------------
 */

/* Allocates at least `size` bytes on `device`, for use on `stream`; the address is a multiple of
 * 512.
 *
 * Returns NULL for size 0 and NULL WHEN MEMORY IS OUT (the report is kept: see
 * offcut_out_of_memory_report). Beware: PyTorch's pluggable interface does not check for NULL. It
 * hands it on as a tensor that silently points nowhere, and the program dies at its first kernel;
 * only as the allocator of a torch.cuda.MemPool does NULL become torch.OutOfMemoryError. With
 * `backend:` set in PYTORCH_CUDA_ALLOC_CONF, PyTorch also dies at its first pin_memory() under any
 * pluggable allocator. Prefer the Python package: `import offcut; offcut.enable()` raises
 * torch.OutOfMemoryError as PyTorch's own allocator does. */
OFFCUT_API void* offcut_malloc(ssize_t size, int device, offcut_stream stream);

/* Frees a block of offcut_malloc. NULL is ignored. Never fails: a pointer that is no live block is
 * counted (invalid_frees), recorded and ignored. `size` and `device` are not needed and not
 * believed; `stream` is the stream that the block was allocated for: a stream that differs is not
 * waited for. */
OFFCUT_API void offcut_free(void* pointer, ssize_t size, int device, offcut_stream stream);

/* ---- Allocation --------------------------------------------------------------------------------
 */

/* As offcut_malloc, with the outcome as status. `*out` is NULL for size 0 (OFFCUT_OK) and on error.
 */
OFFCUT_API offcut_status offcut_allocate(int device, offcut_stream stream, size_t size, void** out);

/* As offcut_free; OFFCUT_INVALID_ARGUMENT for a pointer that is no live block. */
OFFCUT_API offcut_status offcut_deallocate(void* pointer);

/* The block is also used on `stream` of `device`, its own or a peer: once freed, it is reused only
 * after that stream has passed the free. A no-op for the stream it was allocated for. */
OFFCUT_API offcut_status offcut_record_stream(void* pointer, int device, offcut_stream stream);

typedef struct offcut_block {
  void* address;    /* start of the block */
  size_t requested; /* bytes asked for */
  size_t size;      /* bytes of the block, a multiple of 512 */
  int device;
  offcut_stream stream; /* the stream that it was allocated for */
  void* range_address;  /* start of the reserved range of address space that the block lies in */
  size_t range_size;
} offcut_block;

/* The live block that `pointer` is the start of, or lies in. OFFCUT_INVALID_ARGUMENT if none. */
OFFCUT_API offcut_status offcut_find_block(const void* pointer, offcut_block* out);

/* Gives idle memory of `device` (-1: all devices) back to the driver, that of private pools which
 * nobody uses any more included. Waits for the device; while a stream is being captured into a CUDA
 * graph, which the wait would end, it does nothing. */
OFFCUT_API offcut_status offcut_empty_cache(int device);

/* Blocks of `device`, those there and those to come, may be used by work on `peer` too. The two
 * must be able to reach each other (cudaDeviceCanAccessPeer). Safe to repeat. */
OFFCUT_API offcut_status offcut_open_to_peer(int device, int peer);

/* A last resort before memory is called out: `callback(context)` frees what it can and returns
 * nonzero if it did. Called on the thread of the request, from any thread, without a lock of ours:
 * it may free blocks, and must not allocate any. One per process; NULL: none. */
OFFCUT_API void offcut_set_free_memory_callback(int (*callback)(void* context), void* context);

/* ---- Private pools -----------------------------------------------------------------------------
 */

/* Memory set apart: for CUDA graphs, which go on using their blocks at each launch, and for what a
 * program wants to keep together (torch.cuda.MemPool). An id is PyTorch's MempoolId_t: exactly one
 * of its numbers is nonzero; {0, 0} names no private pool. A pool is in use while it is retained or
 * routed to: then its memory stays where it is, whatever is freed. After the last release what is
 * free in it goes back to the driver with the next offcut_empty_cache, or when memory runs short,
 * and the id may be used again, for another pool.
 *
 * Unless said otherwise: OFFCUT_INVALID_ARGUMENT for a pool that nobody uses. */
typedef struct offcut_pool_id {
  uint64_t first, second;
} offcut_pool_id;

/* One more use; makes the pool if there is none. */
OFFCUT_API offcut_status offcut_retain_pool(int device, offcut_pool_id pool);
/* An allocator of somebody else's, for a private pool that gets its segments from there instead of
 * from the driver (ncclMemAlloc, managed memory). Blocks are cut from the segments and cached here
 * as in any pool. The memory is counted as foreign, beside the sum of offcut_accounting; the limits
 * hold for reserved and foreign memory together, as PyTorch's do.
 *
 * Its functions are called from any thread, without a lock of ours. What they do while a stream is
 * captured must be allowed there: neither waits for the device. They may call this library: memory
 * that `allocate` gets from offcut_malloc and hands on is the pool's own and no foreign memory, and
 * is to be freed with offcut_free. */
typedef struct offcut_foreign_allocator {
  /* Writes the address, a multiple of 512, of `size` bytes that stay this pool's, usable on any
   * stream of `device`, until they come to `release`; NULL if there is no memory, which is then
   * searched elsewhere before the request fails. 0, or anything else if it failed otherwise: then
   * the request fails at once, with OFFCUT_CALLBACK_FAILED. */
  int (*allocate)(void* context, size_t size, int device, void** out);
  /* Takes back what `allocate` gave, whole. The device is done with it. */
  void (*release)(void* context, void* pointer, size_t size, int device);
  /* The context is not needed any more; NULL: nothing to do. */
  void (*destroy)(void* context);
  void* context;
} offcut_foreign_allocator;
/* As offcut_retain_pool; a pool that is made by this call gets its memory from `*allocator`, which
 * is copied, and whose context is destroyed once the pool is released and its last segment has
 * gone. Where there is such a pool already, whatever its memory, or on an error: at once. */
OFFCUT_API offcut_status offcut_retain_foreign_pool(int device, offcut_pool_id pool,
                                                    const offcut_foreign_allocator* allocator);
/* One use less. */
OFFCUT_API offcut_status offcut_release_pool(int device, offcut_pool_id pool);
/* How many times it was retained and not released; 0 for a pool that nobody uses. */
OFFCUT_API offcut_status offcut_pool_use_count(int device, offcut_pool_id pool, unsigned* out);

/* Whether a request for use on `stream` belongs to the pool: 1 yes, 0 no, negative: could not tell.
 * Called for each request, on its thread, under the device's lock: it must not call this library.
 */
typedef int (*offcut_stream_filter)(void* context, offcut_stream stream);

/* From now on, requests on `device` that `filter(context, stream)` says yes to are served from the
 * pool, which is retained once more; among several such routes the latest that says yes wins.
 * `stream` is where the caller works now: if it is captured into a graph, that will be known.
 * `destroy(context)` (or NULL) is called once the route has ended, at once if this fails: with
 * OFFCUT_WRONG_STATE if a route leads to the pool already. */
OFFCUT_API offcut_status offcut_begin_allocate_to_pool(int device, offcut_pool_id pool,
                                                       offcut_stream stream,
                                                       offcut_stream_filter filter,
                                                       void (*destroy)(void* context),
                                                       void* context);
/* Ends the route; the pool stays retained. OFFCUT_WRONG_STATE if no route leads there. */
OFFCUT_API offcut_status offcut_end_allocate_to_pool(int device, offcut_pool_id pool);

/* Blocks of the pool are never split: each is a segment of its own. */
OFFCUT_API offcut_status offcut_set_no_split(int device, offcut_pool_id pool);
/* Whether free blocks of the pool may serve requests of its streams that would fail otherwise. */
OFFCUT_API offcut_status offcut_set_use_on_oom(int device, offcut_pool_id pool, int use);

/* As offcut_empty_cache, for released pools of this id alone; a pool in use keeps its memory. */
OFFCUT_API offcut_status offcut_empty_cache_of_pool(int device, offcut_pool_id pool);

/* `*out` is 1 if the pool's live blocks start at just these `count` addresses, else 0. */
OFFCUT_API offcut_status offcut_check_pool_live_allocations(int device, offcut_pool_id pool,
                                                            void* const* addresses, size_t count,
                                                            int* out);

/* The blocks of a pool in use at one moment, to be brought back later (torch.compile's CUDA graph
 * trees). Taking or restoring one is OFFCUT_WRONG_STATE while a freed block of the pool is still
 * used by a stream. */
typedef struct offcut_checkpoint offcut_checkpoint;
/* `*out` is the caller's to give to offcut_destroy_checkpoint; NULL on error. */
OFFCUT_API offcut_status offcut_take_checkpoint(int device, offcut_pool_id pool,
                                                offcut_checkpoint** out);
OFFCUT_API void offcut_destroy_checkpoint(offcut_checkpoint* checkpoint);
/* Frees all live blocks of the pool, and makes live again those that lived when the checkpoint was
 * taken, where they were; `freed(context, address)` and `allocated(context, address)` are called
 * for each, all of the former first; an address may be told of by both. OFFCUT_WRONG_STATE, with
 * nothing changed, also if a segment of then is gone, or a live block is used by other streams. */
OFFCUT_API offcut_status offcut_restore_checkpoint(int device, const offcut_checkpoint* checkpoint,
                                                   void (*freed)(void* context, void* address),
                                                   void (*allocated)(void* context, void* address),
                                                   void* context);

/* ---- Limits ------------------------------------------------------------------------------------
 */

/* Reserved memory of `device` stays within fraction x its total memory; 0 <= fraction <= 1, 1: no
 * limit. */
OFFCUT_API offcut_status offcut_set_memory_fraction(int device, double fraction);
OFFCUT_API offcut_status offcut_get_memory_fraction(int device, double* out);

/* What PyTorch lets a program change while it runs (torch.cuda.memory._set_allocator_settings). */
typedef struct offcut_size_options {
  size_t max_split_bytes; /* SIZE_MAX: none */
  size_t max_non_split_rounding_bytes;
  size_t large_segment_bytes;            /* at least 10 MiB */
  uint64_t roundup_power2_divisions[16]; /* per power of two from 1 MiB on; 0 or a power of two */
  double garbage_collection_threshold;   /* of the limit, below 1; 0: off */
} offcut_size_options;
/* Requests of all devices go by these from now on, except what OFFCUT_CONF says. */
OFFCUT_API offcut_status offcut_set_size_options(const offcut_size_options* options);

/* ---- Statistics --------------------------------------------------------------------------------
 */

/* A level, its peak, and how much it rose and fell in all. */
typedef struct offcut_gauge {
  int64_t current, peak, risen, fallen;
} offcut_gauge;

enum { OFFCUT_ALL = 0, OFFCUT_SMALL = 1, OFFCUT_LARGE = 2 }; /* small: blocks of at most 1 MiB */

typedef struct offcut_counters {
#define OFFCUT_GAUGE(name, unit, sentence) offcut_gauge name[3];
#define OFFCUT_COUNT(name, unit, sentence) uint64_t name;
#define OFFCUT_LEVEL(name, unit, sentence) uint64_t name;
#include "allocator/events/counters.def"
#undef OFFCUT_GAUGE
#undef OFFCUT_COUNT
#undef OFFCUT_LEVEL
} offcut_counters;

/* All zero for a device on which nothing was allocated yet. */
OFFCUT_API offcut_status offcut_get_counters(int device, offcut_counters* out);
/* Of these and of the segments' counters. */
OFFCUT_API offcut_status offcut_reset_peaks(int device);
OFFCUT_API offcut_status offcut_reset_totals(int device);

/* What PyTorch counts of segments: of all memory in the segments layout, else of private pools,
 * which are always made of segments. */
typedef struct offcut_segment_counters {
  offcut_gauge segments[3];        /* held; [OFFCUT_SMALL]: those for small requests */
  offcut_gauge remainders[3];      /* free blocks of segments that hold other blocks too ... */
  offcut_gauge remainder_bytes[3]; /* ... which therefore cannot go back to the driver */
  offcut_gauge oversize_blocks;    /* that the program holds, of at least max_split_bytes */
  offcut_gauge oversize_segments;  /* of at least max_split_bytes */
  size_t max_split_bytes;          /* max_split_size_mb; SIZE_MAX: none */
} offcut_segment_counters;
/* All zero for a device on which nothing was allocated yet, but for max_split_bytes. */
OFFCUT_API offcut_status offcut_get_segment_counters(int device, offcut_segment_counters* out);

/* Where the device's memory is; the terms of allocator/README.md, which add up:
 * live + rounding + pending + private_pools_free + pinned + idle + driver_pool_free = reserved,
 * reserved + outside = device_used. Beside the sum: foreign, the segments that private pools got
 * from allocators of somebody else's; the blocks in them are in no term. Samples device_used.
 * O(blocks). */
typedef struct offcut_accounting {
  uint64_t live_bytes, rounding_bytes, pending_bytes, private_pools_free_bytes, pinned_bytes,
      idle_bytes, driver_pool_free_bytes;
  int64_t outside_bytes;
  uint64_t reserved_bytes, device_used_bytes;
  uint64_t foreign_bytes;
} offcut_accounting;
OFFCUT_API offcut_status offcut_get_accounting(int device, offcut_accounting* out);

/* Size of the largest request that a free block of `device` would serve without growing; 0 if none.
 */
OFFCUT_API offcut_status offcut_largest_free_block(int device, size_t* out);

/* The report of the calling thread's last request that failed because memory was out: some lines of
 * text (request, limit, where the memory is). Of a process that records, the last line names the
 * file with the whole report: pools, what pins memory, what would have helped. It is in the
 * recording's directory, readable by the user alone; a later failure may replace it where there are
 * very many.
 * "" if none failed. Valid until the thread's next failing request. */
OFFCUT_API const char* offcut_out_of_memory_report(void);

/* Recomputes every invariant of the allocator's state on all devices, independently of the
 * allocator. OFFCUT_OK, or OFFCUT_DRIVER_ERROR with the first violation in offcut_last_error(). */
OFFCUT_API offcut_status offcut_audit(void);

/* ---- Snapshots and changes ----------------------------------------------------------------------
 */

typedef enum offcut_block_state {
  OFFCUT_BLOCK_FREE = 0,
  OFFCUT_BLOCK_LIVE = 1,
  OFFCUT_BLOCK_PENDING = 2, /* freed by the program, still used by a stream */
} offcut_block_state;

typedef struct offcut_snapshot_block {
  size_t size;      /* the block begins where the one before it in its segment ends */
  size_t requested; /* bytes asked for; 0 of a free block */
  offcut_block_state state;
} offcut_snapshot_block;

typedef struct offcut_snapshot_segment {
  void* address;
  size_t size;
  offcut_stream stream;
  offcut_pool_id pool; /* {0, 0}: a default pool */
  int small;           /* of small requests */
  int in_one_piece;    /* 1: a segment as it was made; 0: a run of an arena that one pool holds */
  size_t first_block;  /* in offcut_snapshot.blocks */
  size_t block_count;  /* which cover the segment without a hole */
} offcut_snapshot_segment;

/* All mapped memory of a device at one moment. */
typedef struct offcut_snapshot {
  const offcut_snapshot_segment* segments; /* by address */
  size_t segment_count;
  const offcut_snapshot_block* blocks;
  size_t block_count;
} offcut_snapshot;

/* `*out` is the caller's to give to offcut_destroy_snapshot; empty for a device that is not in use.
 * `at_moment(context)`, if not NULL, is called once while the device is in the state that is told,
 * under its lock: it must not call this library. O(blocks). */
OFFCUT_API offcut_status offcut_take_snapshot(int device, void (*at_moment)(void* context),
                                              void* context, offcut_snapshot** out);
OFFCUT_API void offcut_destroy_snapshot(offcut_snapshot* snapshot);

typedef enum offcut_action {
  OFFCUT_BLOCK_ALLOCATED = 0,
  OFFCUT_FREE_REQUESTED = 1, /* by the program */
  OFFCUT_FREE_COMPLETED = 2, /* at once, or when all streams have passed the free */
  OFFCUT_SEGMENT_MADE = 3,
  OFFCUT_SEGMENT_RELEASED = 4,
  OFFCUT_RANGE_MAPPED = 5, /* memory came to stand behind a range of an arena */
  OFFCUT_RANGE_UNMAPPED = 6,
  OFFCUT_REQUEST_FAILED = 7, /* because memory, or the limit, is used up */
} offcut_action;

typedef struct offcut_change {
  offcut_action action;
  int device;
  uint64_t address;     /* of the block, segment or range; 0 of a failed request */
  size_t requested;     /* bytes asked for, of blocks and of failed requests; else 0 */
  size_t size;          /* bytes of the block, segment or range; a failed request, rounded up */
  offcut_stream stream; /* NULL also where the change belongs to no pool */
  offcut_pool_id pool;
  size_t device_free; /* free memory of the device when last asked for: at growths and failures */
} offcut_change;

/* Called on the thread that makes the change, under the device's lock: it must neither call this
 * library nor wait for anything that a thread within it may hold. Changes of one device come one
 * after the other, those of two devices perhaps at once. */
typedef void (*offcut_observer)(void* context, const offcut_change* change);

/* `observer(context, change)` is told of every change from now on; one per process. NULL: nobody;
 * once that returns, no call is under way. While there is one, each allocation and free pays for
 * it. */
OFFCUT_API void offcut_set_observer(offcut_observer observer, void* context);

/* ---- Recording ---------------------------------------------------------------------------------
 */

/* The directory that this process records into, or "" if it does not record. Valid for the
 * process's life. */
OFFCUT_API const char* offcut_recording_directory(void);

/* Marks the beginning of step `number` (a training step, a request served) on all devices in use.
 */
OFFCUT_API void offcut_mark_step(uint64_t number);

/* Returns once everything recorded so far stands in chunks on disk. Optional: what was recorded
 * survives the process in any case. */
OFFCUT_API void offcut_flush_recording(void);

#ifdef __cplusplus
}
#endif

#endif /* OFFCUT_ALLOCATOR_OFFCUT_H_ */
