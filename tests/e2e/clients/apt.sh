#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# apt.sh URL FOLDER: fetches the lists of a repository, then a package, as an ordinary user.
mkdir -p "$2" && cd "$2" && echo "deb [trusted=yes] $1 ./" >sources.list || exit 1
set -- -qq -o Acquire::Retries=0 -o Dir::State="$PWD" -o Dir::State::Status=/dev/null -o Dir::Cache="$PWD" \
    -o Dir::Etc::SourceList="$PWD/sources.list" -o Dir::Etc::SourceParts=-
apt-get "$@" update && apt-get "$@" download lab-hello && dpkg-deb --info lab-hello_1.0.0_all.deb
