# The race of Intel MPX Explained: another thread fills the array with pointers to the first or to the second object
# alternately, each store of a pointer followed by one of its bounds. This thread loads each pointer,
# then its bounds, checks both and reads one byte. If there is no other thread, this thread fills the
# array before each pass.

race:
    call make_bounds
    call fill_second
    call fill_first
    cmpq $0, THREADED
    je 1f
    call start_other
1:  mov $MASK_MAIN, %edx
    call pin
    lea 6f(%rip), %r15
    mov PASSES, %rbp
    mov OFFSET, %r12
    call ticks
    mov %rax, BEGIN
2:  cmpq $0, THREADED
    jne 4f
    test $1, %bpl
    jz 3f
    call fill_second
    jmp 4f
3:  call fill_first
4:  mov $ARRAY, %edi
    mov POINTERS, %rsi
5:  mov (%rdi), %rax
    BNDLDX_0_RDI_RAX
    lea (%rax,%r12), %rbx
    BNDCL_0_RBX
    BNDCU_0_RBX
    movzbl (%rbx), %ecx
6:  add $8, %rdi
    dec %rsi
    jnz 5b
    dec %rbp
    jnz 2b
    call ticks
    mov %rax, END
    movq $1, STOP
    mov $ANSWERS, %esi
    mov $ANSWER_BYTES, %edx
    jmp answer

# bnd2 is the first object's, bnd3 the second's.
make_bounds:
    mov $OBJECTS, %eax
    mov $OBJECT_BYTES - 1, %ebx
    BNDMK_2_RAX_RBX
    mov $OBJECTS + OBJECT_BYTES, %eax
    BNDMK_3_RAX_RBX
    ret

.macro FILL object, store
    mov $ARRAY, %edi
    mov POINTERS, %rcx
    mov $\object, %eax
1:  mov %rax, (%rdi)
    \store
    add $8, %rdi
    dec %rcx
    jnz 1b
    ret
.endm

fill_first:
    FILL OBJECTS, BNDSTX_RDI_RAX_2
fill_second:
    FILL OBJECTS+OBJECT_BYTES, BNDSTX_RDI_RAX_3

# Starts the other thread and waits until it stores.
start_other:
    mov $56, %eax                       # clone
    mov $0x50f00, %edi                  # a thread of this process
    mov $OTHER_STACK, %esi
    xor %edx, %edx
    xor %r10d, %r10d
    xor %r8d, %r8d
    syscall
    test %rax, %rax
    js refused
    jz other
1:  pause
    cmpq $0, FILLS
    je 1b
    ret

other:
    mov $MASK_OTHER, %edx
    call pin
    call enable
    call make_bounds
1:  call fill_second
    call fill_first
    incq FILLS
    cmpq $0, STOP
    je 1b
    mov $60, %eax                       # exit
    xor %edi, %edi
    syscall

# Pins this thread to the CPU mask at rdx; if that fails, it stays unpinned.
pin:
    mov $203, %eax                      # sched_setaffinity
    xor %edi, %edi
    mov $MASK_BYTES, %esi
    syscall
    ret

ticks:
    lfence
    rdtsc
    lfence
    shl $32, %rdx
    or %rdx, %rax
    ret

    .globl tollgate_mpx_end
    .hidden tollgate_mpx_end
tollgate_mpx_end:
