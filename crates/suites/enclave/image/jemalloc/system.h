// jemalloc's own headers, and where its system begins.
#pragma once
#include "jemalloc/internal/jemalloc_preamble.h"

#include "jemalloc/internal/jemalloc_internal_includes.h"

// The heap that jemalloc's pages come from.
void system_begin(void* heap_start, void* heap_end);
