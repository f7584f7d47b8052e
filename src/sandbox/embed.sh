#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# embed.sh PROGRAM OUTPUT: writes C that holds the bytes of PROGRAM.
set -eu
program=$(realpath "$1")
cat > "$2" <<END
// SPDX-License-Identifier: Apache-2.0
// Made by embed.sh from $(basename "$1"), $(sha256sum < "$1" | cut -c1-16).
extern const unsigned char sandbox_init_image[], sandbox_init_image_end[];
__asm__(".pushsection .rodata\n"
        ".global sandbox_init_image, sandbox_init_image_end\n"
        "sandbox_init_image:\n"
        ".incbin \"$program\"\n"
        "sandbox_init_image_end:\n"
        ".popsection\n");
END
