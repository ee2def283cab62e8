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
