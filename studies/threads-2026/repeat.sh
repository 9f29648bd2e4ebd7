#!/bin/bash
# repeat.sh VBSTUDY FOLDER: sweeps every part of the study in FOLDER, traces and analyses it. Run again, it resumes.
set -euo pipefail
vbstudy=$1 folder=$2 here=$(cd "$(dirname "$0")" && pwd)
for part in threads-2026 eight isa; do
    mkdir -p "$folder/$part"
    source=$here/$part/study.toml
    [ -e "$source" ] || source=$here/study.toml
    [ -e "$folder/$part/study.toml" ] || cp "$source" "$folder/$part/"
    [ -e "$folder/$part/guests.json" ] || "$vbstudy" -C "$folder/$part" provision
    "$vbstudy" -C "$folder/$part" sweep
done
for workload in $(sed -n 's/^name = "\(.*-\(torch\|keras\)\)"/\1/p' "$here/study.toml"); do
    traced=$folder/threads-2026/.traced-$workload
    [ -e "$traced" ] || { "$vbstudy" -C "$folder/threads-2026" trace --cpus 1,4 --workload "$workload" --steps 16 && touch "$traced"; }
done
"$vbstudy" -C "$folder/threads-2026" analyze --against issre21
