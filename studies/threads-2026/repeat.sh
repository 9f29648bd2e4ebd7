#!/bin/bash
# repeat.sh BIN FOLDER: runs every part of the study in FOLDER, with the programs of BIN. Run again, it resumes.
set -euo pipefail
bin=$1 folder=$2 here=$(cd "$(dirname "$0")" && pwd)
main=$folder/main

run() { # PART FILE [provision's options]
    mkdir -p "$folder/$1"
    [ -e "$folder/$1/study.toml" ] || cp "$here/$2" "$folder/$1/study.toml"
    [ -e "$folder/$1/guests.json" ] || "$bin/vbstudy" -C "$folder/$1" provision "${@:3}"
    "$bin/vbstudy" -C "$folder/$1" sweep
}

# Whether a trace of this workload has found the operation that differs.
found() {
    "$bin/python" - "$main/trace" "$1" <<'END'
import json, pathlib, sys
traces = pathlib.Path(sys.argv[1]).glob(f"{sys.argv[2]}-cpus-*/trace.json")
sys.exit(not any(json.loads(t.read_text("utf-8"))["outcome"] == "operation" for t in traces))
END
}

run main study.toml
for workload in $(sed -n 's/^name = "\(.*-\(torch\|keras\)\)"/\1/p' "$here/study.toml"); do
    for counts in 1,4 1,2 1,8; do
        compgen -G "$main/trace/$workload-cpus-1-cpus-${counts#1,}-*/trace.json" >/dev/null || found "$workload" ||
            "$bin/vbstudy" -C "$main" trace --cpus "$counts" --workload "$workload" --steps 16
    done
    "$bin/vbstudy" -C "$main" harden --cpus 1,2 --workload "$workload" || [ $? = 1 ] # 1: no tier is proved
done
run isa isa/study.toml
run qemu qemu/study.toml
run host qemu/study.toml --provider local
"$bin/vbstudy" -C "$main" analyze --against issre21
