# Where the parts lie, for the program that builds the image.
.globl tollgate_guest_code
.hidden tollgate_guest_code
.set tollgate_guest_code, guest_code
    .balign 4
.globl tollgate_guest_parts
.hidden tollgate_guest_parts
tollgate_guest_parts:
    .long guest_start32 - guest_code
    .long guest_start64 - guest_code
    .long guest_entries - guest_code
    .long guest_stubs - guest_code
    .long guest_user - guest_code
    .long guest_user_end - guest_code
