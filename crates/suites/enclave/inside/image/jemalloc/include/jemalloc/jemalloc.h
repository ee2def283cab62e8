// jemalloc's public header, composed of its parts. build.rs fills in those that are templates.
#pragma once
#define JEMALLOC_HAVE_ATTR
#define JEMALLOC_HAVE_ATTR_ALLOC_SIZE
#define JEMALLOC_HAVE_ATTR_FORMAT_PRINTF
#define JEMALLOC_HAVE_ATTR_FALLTHROUGH
#define JEMALLOC_HAVE_ATTR_COLD
#define JEMALLOC_USABLE_SIZE_CONST
#define LG_SIZEOF_PTR 3
#include "jemalloc/jemalloc_macros.h"
#include "jemalloc/jemalloc_protos.h"
#include "jemalloc/jemalloc_typedefs.h"
