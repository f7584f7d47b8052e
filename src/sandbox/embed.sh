#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# embed.sh PROGRAM OUTPUT NAME: writes C that holds the bytes of PROGRAM, as NAME_image.
set -eu
program=$(realpath "$1")
name=$3
cat > "$2" <<END
// SPDX-License-Identifier: Apache-2.0
// Made by embed.sh from $(basename "$1"), $(sha256sum < "$1" | cut -c1-16).
extern const unsigned char ${name}_image[], ${name}_image_end[];
__asm__(".pushsection .rodata\n"
        ".global ${name}_image, ${name}_image_end\n"
        "${name}_image:\n"
        ".incbin \"$program\"\n"
        "${name}_image_end:\n"
        ".popsection\n");
END
