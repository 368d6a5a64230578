// The words of libraries that are not simulated at all. Their first functions refuse (see
// functions_13.def); what PyTorch then asks about the error gets our sentence, which so arrives in
// the exception. These libraries fail at creation, hence no other error of theirs is ever shown.

#include "allocator/sim/cuda_abi/function_list.h"

using offcut::cuda_abi::AbsentSentence;
using offcut::cuda_abi::Library;

extern "C" {

const char* cudnnGetErrorString(int) { return AbsentSentence(Library::kCudnn); }

const char* ncclGetErrorString(int) { return AbsentSentence(Library::kNccl); }
const char* ncclGetLastError(void*) { return AbsentSentence(Library::kNccl); }

const char* cusparseGetErrorString(int) { return AbsentSentence(Library::kCusparse); }

}  // extern "C"
