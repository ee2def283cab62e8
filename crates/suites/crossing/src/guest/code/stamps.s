# The stamps: what is timed stands between START and STOP. As in machine::tsc both wait for all that
# stands before them and hold back all that follows; only that the second waits by lfence and not by
# rdtscp, which some hypervisors do not give and which would overwrite ecx.

# Ends in registers of its own: what is timed may change eax and edx.
.macro START low, high
    lfence
    rdtsc
    mov %eax, \low
    mov %edx, \high
    lfence
.endm

# Ends in edx:eax.
.macro STOP
    lfence
    rdtsc
    lfence
.endm

# edx:eax as one number in a register.
.macro JOIN low, high, to
    shl $32, \high
    lea (\low,\high), \to
.endm

# The least that two rdtsc in a row take, kept at an address. Loses eax, ecx and edx.
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

# Counts a time in its bin; the last bin takes what is longer, and the longest is kept.
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
