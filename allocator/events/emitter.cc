#include "allocator/events/emitter.h"

namespace offcut {

void Emitter::Emit(const Event& fact) { EmitInline(fact); }

}  // namespace offcut
