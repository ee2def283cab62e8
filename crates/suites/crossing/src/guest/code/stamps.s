# Stamps: the timed code is between START and STOP. As in machine::tsc, both wait for all earlier instructions
# and hold back all later ones. The second waits by lfence instead of rdtscp, which some hypervisors lack and
# which would overwrite ecx.

# Result in low and high, because the timed code may change eax and edx.
.macro START low, high
    lfence
    rdtsc
    mov %eax, \low
    mov %edx, \high
    lfence
.endm

# Result in edx:eax.
.macro STOP
    lfence
    rdtsc
    lfence
.endm

# The first stamp of a way, of a level of `Stamp`, in low and high. Only STAMP_LFENCE waits for earlier instructions
# on every CPU.
.macro FIRST stamp, low, high
.if \stamp == STAMP_LFENCE
    START \low, \high
.else
.if \stamp != STAMP_UNFENCED
    mfence
.endif
    rdtsc
    mov %eax, \low
    mov %edx, \high
.endif
.endm

# The second stamp of a way, in edx:eax.
.macro SECOND stamp
.if \stamp == STAMP_LFENCE
    STOP
.else
    rdtsc
.if \stamp != STAMP_UNFENCED
    mfence
.endif
.endif
.endm

# The four stamps of a crossing. STAMP_XPERF has the instructions that xperf lists between its stamps and the crossing:
# first stamps are stored to memory, at (r11) by ring 3 and at 8(r11) by the handler. With the other levels they are in
# r9d:r8d and ebp:esi.

.macro FIRST_IN_USER stamp
.if \stamp == STAMP_XPERF
    mfence
    rdtsc
    shl $32, %rdx
    or %rdx, %rax
    mov %rax, (%r11)
.else
    FIRST \stamp, %r8d, %r9d
.endif
.endm

# `cs` is the offset of the interrupted CS on the stack.
.macro SECOND_IN_HANDLER stamp, cs
.if \stamp == STAMP_XPERF
    testb $3, \cs(%rsp)
    jz .Lfrom_kernel\@
    mov %rax, -8(%rsp)
    mov %rdx, -16(%rsp)
    rdtsc
    mfence
.Lfrom_kernel\@:
.else
    SECOND \stamp
.endif
.endm

.macro FIRST_IN_HANDLER stamp
.if \stamp == STAMP_XPERF
    push %rax
    push %rdx
    push %rcx
    lea 8(%r11), %rcx
    mfence
    rdtsc
    shl $32, %rdx
    or %rdx, %rax
    mov %rax, (%rcx)
    pop %rcx
    pop %rdx
    pop %rax
.else
    FIRST \stamp, %esi, %ebp
.endif
.endm

# Clears the stamps in memory, so that none is stale.
.macro CLEAR_STAMPS stamp
.if \stamp == STAMP_XPERF
    mov $STAMPS, %r11d
    movq $0, (%r11)
    movq $0, 8(%r11)
.endif
.endm

# Loads the stamps in memory as guest_finish expects them.
.macro LOAD_STAMPS stamp
.if \stamp == STAMP_XPERF
    mov (%r11), %r8
    xor %r9d, %r9d
    mov 8(%r11), %rsi
    xor %ebp, %ebp
.endif
.endm

# Joins edx:eax to one number in a register.
.macro JOIN low, high, to
    shl $32, \high
    lea (\low,\high), \to
.endm

# Keeps at an address the minimum time of two consecutive rdtsc. Clobbers eax, ecx and edx.
.macro FLOOR at
    rdtsc
    mov %eax, %ecx
    rdtsc
    sub %ecx, %eax
    cmp \at, %eax
    jae .Lfloor\@
    mov %eax, \at
.Lfloor\@:
.endm

# Counts a time in its bin. The last bin takes all longer times, and the maximum is kept.
.macro COUNT_IN ticks, bins, last, longest
    cmp $\last, \ticks
    jb .Lcount\@
    cmp \longest, \ticks
    jbe .Llast\@
    mov \ticks, \longest
.Llast\@:
    mov $\last, \ticks
.Lcount\@:
    incl \bins(,\ticks,4)
.endm
