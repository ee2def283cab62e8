# The kernel's private code: start-up and one sample. Only in the kernel's page table.

    .balign 4096
guest_code:
# Space for a multiboot header.
    .fill 64, 1, 0

# Entry for a multiboot loader: 32 bits, no paging.
    .code32
guest_start32:
    cli
    mov $KERNEL_STACK, %esp
    mov $0x20, %eax
    mov %eax, %cr4
    mov $TABLES, %eax
    mov %eax, %cr3
    mov $0xc0000080, %ecx
    rdmsr
    or $0x100, %eax
    wrmsr
    # Paging, write protection, native FPU errors, protection.
    mov $0x80010033, %eax
    mov %eax, %cr0
    lgdt GDTR
    ljmp $KERNEL_CS, $START64

    .code64
# Entry for KVM: 64 bits, the kernel's page table.
guest_start64:
.set START64, guest_start64 - guest_code + BASE
    mov $KERNEL_STACK, %esp
    lgdt GDTR
    push $KERNEL_CS
    lea .Lreload(%rip), %rax
    push %rax
    lretq
.Lreload:
    mov $KERNEL_SS, %eax
    mov %eax, %ds
    mov %eax, %es
    mov %eax, %ss
    xor %eax, %eax
    mov %eax, %fs
    mov %eax, %gs
    mov $TSS_SELECTOR, %eax
    ltr %ax
    lidt IDTR
    call guest_set_up
    cmpl $0, STANDALONE
    jne guest_standalone
.Lserve:
    call guest_sample
    mov $EXIT_DONE, %eax
    call guest_exit
    jmp .Lserve

guest_exit:
    mov $EXIT_PORT, %edx
    out %eax, %dx
    ret

# Enables syscall, and PCID if the CPU has it.
guest_set_up:
    push %rbx
    mov $0xc0000080, %ecx
    rdmsr
    or $1, %eax
    wrmsr
    mov $0xc0000081, %ecx
    xor %eax, %eax
    mov $((SYSRET_BASE << 16) | KERNEL_CS), %edx
    wrmsr
    # Flags that syscall clears: trap, direction, interrupt, IOPL, nested task, alignment check.
    mov $0xc0000084, %ecx
    mov $0x47700, %eax
    xor %edx, %edx
    wrmsr
    mov $1, %eax
    cpuid
    mov %ecx, %esi
    bt $17, %ecx
    jnc .Lno_pcid
    mov %cr4, %rax
    bts $17, %rax
    mov %rax, %cr4
    # Ring 3 has PCID 1, the kernel 0; the switch flushes neither.
    btsq $63, KERNEL_CR3
    btsq $63, USER_CR3
    orq $1, USER_CR3
    movl $1, PCID
.Lno_pcid:
    # AMD on bare metal: make lfence wait for earlier instructions (DE_CFG bit 1), as Linux does. Families 0x0f
    # and 0x11 lack the bit and always wait.
    bt $31, %esi
    jc .Lset_up
    xor %eax, %eax
    cpuid
    cmp $0x68747541, %ebx
    jne .Lset_up
    mov $1, %eax
    cpuid
    mov %eax, %ecx
    shr $8, %ecx
    and $0xf, %ecx
    shr $20, %eax
    and $0xff, %eax
    add %ecx, %eax
    cmp $0x0f, %eax
    je .Lset_up
    cmp $0x11, %eax
    je .Lset_up
    mov $0xc0011029, %ecx
    rdmsr
    bts $1, %eax
    wrmsr
.Lset_up:
    pop %rbx
    ret

# Takes one sample of VARIANT and ISOLATION.
guest_sample:
    push %rbx
    push %rbp
    push %r12
    push %r13
    push %r14
    push %r15
    cld
    xor %eax, %eax
    mov %rax, MADE
    mov %rax, STAMPED
    mov %rax, U2K_LONGEST
    mov %rax, K2U_LONGEST
    mov %rax, EMPTY_LONGEST
    mov %eax, SEEN_CS
    movl $-1, FLOOR_USER
    movl $-1, FLOOR_HANDLER
    mov CROSSINGS, %rax
    mov %rax, LEFT
    mov WARMUP, %rax
    mov %rax, WARM_LEFT
    # Redirect the gate.
    lea guest_code(%rip), %rbp
    mov VARIANT, %ebx
    mov ISOLATION, %r15d
    lea (%r15,%rbx,2), %eax
    lea .Lentry_of(%rip), %rsi
    mov (%rsi,%rax,4), %eax
    add %rbp, %rax
    lea .Lvector_of(%rip), %rsi
    movzbl (%rsi,%rbx), %ecx
    mov %ecx, GATE_TAKEN
    xor %edx, %edx
    call guest_take_gate
    # Ring 3's loop and registers.
    lea .Lloop_of(%rip), %rsi
    mov (%rsi,%rbx,4), %eax
    add %rbp, %rax
    mov %rax, LOOP
    lea .Lpairs_of(%rip), %rsi
    mov (%rsi,%rbx,4), %eax
    add %rbp, %rax
    mov %rax, PAIRS
    mov $HOLE, %edi
    mov KERNEL_CR3, %r12
    mov USER_CR3, %r13
    mov %rsp, KERNEL_RSP
    mov $TRAP_STACK, %esp
    cmp $SAME_RING, %ebx
    je .Lsame_ring
    push $USER_SS
    push $USER_STACK
    push $2
    push $USER_CS
    jmp .Lenter
.Lsame_ring:
    push $KERNEL_SS
    push $USER_STACK
    push $2
    push $KERNEL_CS
.Lenter:
    lea guest_user_start(%rip), %rax
    push %rax
    test %r15d, %r15d
    jnz guest_enter_isolated
    iretq

# Continues here after ring 3's loop.
guest_sample_done:
    mov KERNEL_RSP, %rsp
    mov GATE_TAKEN, %ecx
    cmp $32, %ecx
    jae .Lgate_back
    lea guest_stubs(%rip), %rax
    mov %ecx, %edx
    shl $4, %edx
    add %rdx, %rax
    mov $1, %edx
    call guest_take_gate
.Lgate_back:
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbp
    pop %rbx
    ret

# Redirects vector ecx to rax on the stack edx of the TSS; 0xff is syscall, 0 does nothing.
guest_take_gate:
    test %ecx, %ecx
    jz .Ltaken
    cmp $0xff, %ecx
    je .Lsyscall
    shl $4, %ecx
    mov %ax, IDT(%rcx)
    mov %dl, IDT + 4(%rcx)
    shr $16, %eax
    mov %ax, IDT + 6(%rcx)
.Ltaken:
    ret
.Lsyscall:
    xor %edx, %edx
    mov $0xc0000082, %ecx
    wrmsr
    ret

# By the number of the variant: kinds stamped by lfence, then page-fault and none by each other stamp, which have no
# isolation.
    .balign 4
.Lentry_of:
    .long guest_page_fault - guest_code, guest_page_fault_isolated - guest_code
    .long guest_interrupt - guest_code, guest_interrupt_isolated - guest_code
    .long guest_breakpoint - guest_code, guest_breakpoint_isolated - guest_code
    .long guest_invalid_opcode - guest_code, guest_invalid_opcode_isolated - guest_code
    .long guest_syscall_sysret - guest_code, guest_syscall_sysret_isolated - guest_code
    .long guest_syscall_iretq - guest_code, guest_syscall_iretq_isolated - guest_code
    .long guest_interrupt - guest_code, guest_interrupt_isolated - guest_code
    .long 0, 0
    .long guest_page_fault_unfenced - guest_code, 0, 0, 0
    .long guest_page_fault_mfence - guest_code, 0, 0, 0
    .long guest_page_fault_xperf - guest_code, 0, 0, 0
.Lloop_of:
    .long guest_loop_page_fault - guest_code
    .long guest_loop_interrupt - guest_code
    .long guest_loop_breakpoint - guest_code
    .long guest_loop_invalid_opcode - guest_code
    .long guest_loop_syscall - guest_code
    .long guest_loop_syscall - guest_code
    .long guest_loop_interrupt - guest_code
    .long guest_loop_none - guest_code
    .long guest_loop_page_fault_unfenced - guest_code, guest_loop_none_unfenced - guest_code
    .long guest_loop_page_fault_mfence - guest_code, guest_loop_none_mfence - guest_code
    .long guest_loop_page_fault_xperf - guest_code, guest_loop_none_xperf - guest_code
.Lpairs_of:
.rept 8
    .long guest_pairs - guest_code
.endr
.rept 2
    .long guest_pairs_unfenced - guest_code
.endr
.rept 4
    .long guest_pairs_mfence - guest_code
.endr
.Lvector_of:
    .byte 14, INT_VECTOR, 3, 6, 0xff, 0xff, INT_VECTOR, 0, 14, 0, 14, 0, 14, 0
