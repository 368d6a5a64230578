// Heap: glibc's functions are defined over its __libc_ ones. Driver: a function of CUDA's driver
// that is looked up comes back as a few bytes of code that count and jump on. System calls: the
// kernel's syscall user dispatch (Linux 5.11 on x86-64) sends each of the thread to a handler,
// which counts it and makes it. x86-64 only.

#include "bench/peers/call_counter.h"

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#ifndef __x86_64__
#error "the thunks and the dispatch of system calls are written for x86-64"
#endif

// Of linux/prctl.h and linux/syscall_user_dispatch, for headers older than the kernel.
#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_OFF 0
#define PR_SYS_DISPATCH_ON 1
#endif

#define EXPORTED [[gnu::visibility("default")]]

namespace {

constexpr char kAllow = 0;
constexpr char kBlock = 1;

// In the static block of thread-local storage: anything else would call malloc from malloc.
#define STATIC_TLS [[gnu::tls_model("initial-exec")]] thread_local
STATIC_TLS bool counting = false;
STATIC_TLS CallCounts counts = {};
STATIC_TLS char selector = kAllow;  // read by the kernel at each system call

// --- The driver ---

// Counted for all threads: CUDA's functions are handed out once, to whoever calls them.
int64_t driver_calls = 0;
int64_t driver_calls_at_start = 0;

constexpr size_t kThunkBytes = 32;
constexpr size_t kThunkAreaBytes = size_t{1} << 20;
char* next_thunk = nullptr;
char* thunks_end = nullptr;

// lock incq (driver_calls); jmp target. Touches the scratch register r11, which no call preserves.
void* MakeThunk(void* target) {
  if (next_thunk == nullptr) {
    void* const area = mmap(nullptr, kThunkAreaBytes, PROT_READ | PROT_WRITE | PROT_EXEC,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED) return target;
    next_thunk = static_cast<char*>(area);
    thunks_end = next_thunk + kThunkAreaBytes;
  }
  if (next_thunk == thunks_end) return target;
  static const unsigned char kCode[kThunkBytes] = {
      0x49, 0xBB, 0,    0,    0, 0, 0, 0, 0, 0,  // movabs $&driver_calls, %r11
      0xF0, 0x49, 0xFF, 0x03,                    // lock incq (%r11)
      0x49, 0xBB, 0,    0,    0, 0, 0, 0, 0, 0,  // movabs $target, %r11
      0x41, 0xFF, 0xE3,                          // jmp *%r11
  };
  char* const thunk = next_thunk;
  next_thunk += kThunkBytes;
  const int64_t* const counter = &driver_calls;
  std::memcpy(thunk, kCode, kThunkBytes);
  std::memcpy(thunk + 2, &counter, sizeof(counter));
  std::memcpy(thunk + 16, &target, sizeof(target));
  return thunk;
}

// cuMemCreate and the like; not cudaMalloc, cublasCreate or a variable's name.
bool IsDriverFunction(const char* name) {
  return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

using Dlsym = void* (*)(void*, const char*);

Dlsym RealDlsym() {
  static const Dlsym real = reinterpret_cast<Dlsym>(dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5"));
  return real;
}

// --- System calls ---

// The one place from which the thread may always call: the return from the handler.
extern "C" void call_counter_sigreturn();
extern "C" char call_counter_sigreturn_end[];
asm(".text\n"
    ".globl call_counter_sigreturn\n"
    ".hidden call_counter_sigreturn\n"
    ".globl call_counter_sigreturn_end\n"
    ".hidden call_counter_sigreturn_end\n"
    "call_counter_sigreturn:\n"
    "  mov $15, %eax\n"  // rt_sigreturn
    "  syscall\n"
    "  nop\n"
    "call_counter_sigreturn_end:\n");

void OnSystemCall(int, siginfo_t*, void* context) {
  selector = kAllow;
  ++counts.system_calls;
  const int errno_before = errno;
  greg_t* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const int64_t result =
      syscall(registers[REG_RAX], registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
              registers[REG_R10], registers[REG_R8], registers[REG_R9]);
  // syscall() has turned an error into -1 and errno, which its caller expects as the kernel has it.
  registers[REG_RAX] = result == -1 ? -errno : result;
  errno = errno_before;
  selector = kBlock;
}

// glibc's sigaction would have the handler return through its own code, which is not allowed to.
struct KernelSigaction {
  void (*handler)(int, siginfo_t*, void*);
  unsigned long flags;
  void (*restorer)();
  unsigned long mask;
};

bool StartDispatch() {
  constexpr unsigned long kSaRestorer = 0x04000000;
  const KernelSigaction action = {.handler = &OnSystemCall,
                                  .flags = SA_SIGINFO | SA_NODEFER | kSaRestorer,
                                  .restorer = &call_counter_sigreturn,
                                  .mask = 0};
  if (syscall(SYS_rt_sigaction, SIGSYS, &action, nullptr, sizeof(action.mask)) != 0) return false;
  selector = kAllow;
  const char* const begin = reinterpret_cast<const char*>(&call_counter_sigreturn);
  if (prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, begin,
            call_counter_sigreturn_end - begin, &selector) != 0) {
    return false;
  }
  selector = kBlock;
  return true;
}

void StopDispatch() {
  selector = kAllow;
  prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0);
}

void CountHeapAllocation() {
  if (counting) ++counts.heap_allocations;
}

}  // namespace

extern "C" {

EXPORTED void call_counter_start() {
  counts = {};
  driver_calls_at_start = __atomic_load_n(&driver_calls, __ATOMIC_RELAXED);
  counting = true;
  if (!StartDispatch()) counts.system_calls = -1;
}

EXPORTED CallCounts call_counter_stop() {
  if (counts.system_calls >= 0) StopDispatch();
  counting = false;
  counts.driver_calls = __atomic_load_n(&driver_calls, __ATOMIC_RELAXED) - driver_calls_at_start;
  return counts;
}

EXPORTED void* dlsym(void* library, const char* name) {
  // A jump, not a call: glibc judges RTLD_NEXT by the address that it returns to.
  if (!IsDriverFunction(name)) [[likely]]
    return RealDlsym()(library, name);
  void* const found = RealDlsym()(library, name);
  return found == nullptr ? nullptr : MakeThunk(found);
}

void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* pointer, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

EXPORTED void* malloc(size_t bytes) {
  CountHeapAllocation();
  return __libc_malloc(bytes);
}
EXPORTED void* calloc(size_t count, size_t bytes) {
  CountHeapAllocation();
  return __libc_calloc(count, bytes);
}
EXPORTED void* realloc(void* pointer, size_t bytes) {
  CountHeapAllocation();
  return __libc_realloc(pointer, bytes);
}
EXPORTED void* memalign(size_t alignment, size_t bytes) {
  CountHeapAllocation();
  return __libc_memalign(alignment, bytes);
}
EXPORTED void* aligned_alloc(size_t alignment, size_t bytes) {
  CountHeapAllocation();
  return __libc_memalign(alignment, bytes);
}
EXPORTED int posix_memalign(void** pointer, size_t alignment, size_t bytes) {
  CountHeapAllocation();
  *pointer = __libc_memalign(alignment, bytes);
  return *pointer == nullptr ? ENOMEM : 0;
}

}  // extern "C"
