# Entry point: maps the directories, installs the signal handler, enables MPX.

    .globl tollgate_mpx_code
    .hidden tollgate_mpx_code
tollgate_mpx_code:
    movabs $TRUE_DIRECTORY, %rdi
    call map_directory
    movabs $SHIFTED_DIRECTORY, %rdi
    call map_directory

    lea handler(%rip), %rax
    mov %rax, ACTION
    movq $0x44000004, ACTION + 8        # SA_SIGINFO | SA_RESTORER | SA_NODEFER
    lea restorer(%rip), %rax
    mov %rax, ACTION + 16
    mov $13, %eax                       # rt_sigaction
    mov $11, %edi                       # SIGSEGV
    mov $ACTION, %esi
    xor %edx, %edx
    mov $8, %r10d
    syscall
    test %rax, %rax
    jnz refused

    # The register that XRSTOR loads: the directory, with MPX enabled for user mode, and bounds kept
    # over branches that have no prefix.
    movabs $TRUE_DIRECTORY + 3, %rax
    mov %rax, ENABLED + 1024
    movq $0x10, ENABLED + 512
    call enable

    mov MODE, %rax
    test %rax, %rax
    jz operations
    jmp race

# Maps a directory of 2 GiB at rdi.
map_directory:
    mov %rdi, %rbx
    mov $DIRECTORY_BYTES, %rsi
    call map
    cmp %rbx, %rax
    jne refused
    ret

# Maps rsi bytes, at rdi unless it is 0. Returns the address in rax.
map:
    mov $9, %eax                        # mmap
    mov $3, %edx                        # to read and write
    mov $0x4022, %r10d                  # MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
    mov $-1, %r8
    xor %r9d, %r9d
    syscall
    ret

# XRSTOR of BNDCFGU and BNDSTATUS only.
enable:
    mov $0x10, %eax
    xor %edx, %edx
    mov $ENABLED, %edi
    xrstor (%rdi)
    ret

# A system call failed.
refused:
    mov $EXIT_REFUSED, %edi
    jmp exit

# Writes rdx bytes from rsi to standard output and ends.
answer:
    mov $1, %eax                        # write
    mov $1, %edi
    syscall
    test %rax, %rax
    jle refused
    add %rax, %rsi
    sub %rax, %rdx
    jnz answer
    xor %edi, %edi
exit:
    mov $231, %eax                      # exit_group
    syscall
