# #BR arrives as SIGSEGV; BNDSTATUS holds the cause. If a table is missing, the handler maps it and the
# instruction runs again. A violation is counted and execution resumes at the program's r15.

handler:
    push %rbp
    mov %rsp, %rbp
    push %r14
    mov %rdx, %r14                      # the ucontext
    sub $0x600, %rsp
    and $-64, %rsp
    movq $0, 512(%rsp)
    movq $0, 1032(%rsp)
    mov $0x10, %eax
    xor %edx, %edx
    xsave (%rsp)
    mov 1032(%rsp), %rax
    test $3, %al
    jnz 1f
    # A kernel with MPX support has reset BNDSTATUS for the handler; the frame contains the old value.
    mov 224(%r14), %rcx
    test %rcx, %rcx
    jz unexpected
    cmpl $0x46505853, 464(%rcx)         # FP_XSTATE_MAGIC1: an XSAVE area follows
    jne unexpected
    mov 1032(%rcx), %rax
1:  mov %rax, STATUS
    mov %eax, %ecx
    and $3, %ecx
    cmp $1, %ecx
    je violation
    cmp $2, %ecx
    jne unexpected

    and $-4, %rax
    mov %rax, %rbx                      # the directory's entry
    xor %edi, %edi
    mov $TABLE_BYTES, %esi
    call map
    cmp $-4096, %rax
    ja refused
    lea 1(%rax), %rcx
    xor %eax, %eax
    # Another thread may have been first; then this table is left unused.
    lock cmpxchg %rcx, (%rbx)
    lock incq TABLES
    jmp 2f

violation:
    lock incq VIOLATIONS
    mov 96(%r14), %rax                  # its r15
    mov %rax, 168(%r14)                 # its rip
2:  lea -8(%rbp), %rsp
    pop %r14
    pop %rbp
    ret

unexpected:
    mov $EXIT_FAULT, %edi
    jmp exit

restorer:
    mov $15, %eax                       # rt_sigreturn
    syscall
