#!/bin/bash
# repeat.sh VBSTUDY FOLDER: sweeps every part of the study in FOLDER, traces and analyses it. Run again, it resumes.
set -euo pipefail
vbstudy=$1 folder=$2 here=$(cd "$(dirname "$0")" && pwd)
for part in main eight isa; do
    mkdir -p "$folder/$part"
    source=$here/$part/study.toml
    [ "$part" = main ] && source=$here/study.toml
    [ -e "$folder/$part/study.toml" ] || cp "$source" "$folder/$part/"
    [ -e "$folder/$part/guests.json" ] || "$vbstudy" -C "$folder/$part" provision
    "$vbstudy" -C "$folder/$part" sweep
done
for workload in $(sed -n 's/^name = "\(.*-\(torch\|keras\)\)"/\1/p' "$here/study.toml"); do
    traced=$folder/main/.traced-$workload
    [ -e "$traced" ] || { "$vbstudy" -C "$folder/main" trace --cpus 1,4 --workload "$workload" --steps 16 && touch "$traced"; }
done
"$vbstudy" -C "$folder/main" analyze --against issre21
