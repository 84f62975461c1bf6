#!/usr/bin/env bash
# Run one stage of data preparation, as `make STAGE` does, which runs the stages before it first.
#
#   scripts/data.sh download|wikipedia|books|text|pubmed|documents|shards|vocab|tfrecords|bpe|tokens|verify|stats
#
# The settings are environment variables that the Makefile describes and exports. A stage that is finished and unchanged
# returns at once. Where no source is set, a finished stage is used as it is.
set -euo pipefail

stage=$1 work=$BERT_WORKDIR corpus=$BERT_WORKDIR/corpus
wikipedia=${WIKIPEDIA:-} books=${BOOKS:-} text=${TEXT:-} pubmed=${PUBMED:-}
run() { python -m "data.$stage" "$@"; }
finished() { [ -f "$1/manifest.json" ]; }
is_download() { [[ $1 =~ ^($2)$ && ! -e $1 ]]; } # VALUE NAMES: a file or folder of that name is a path, not a name
if is_download "$wikipedia" 'simple|[a-z]{2,3}'; then wiki=$wikipedia wikipedia=$corpus/dump-$wikipedia; fi
if is_download "$books" pg19; then pg19=yes books=$corpus/pg19; fi
if is_download "$pubmed" '20[0-9]{2}'; then pubmed_year=$pubmed pubmed=$corpus/pubmed-$pubmed; fi
texts=(${wikipedia:+"$corpus/wikipedia"} ${books:+"$corpus/books"} ${text:+"$corpus/text"} ${pubmed:+"$corpus/pubmed"})

# Two shards per core as far as each has 16 MiB, at least 8, and none above 512 MiB; unchanged documents keep theirs.
shard_count() {
    local made=$corpus/shards/manifest.json size most
    if [ "$made" -nt "$corpus/documents/manifest.json" ]; then
        sed -nE 's/.*"shards": ([0-9]+).*/\1/p' "$made"
        return
    fi
    size=$(($(find "$corpus/documents" -type f -printf '%s\n' | paste -sd+) >> 20)) most=$((2 * $(nproc)))
    printf '%s\n' 8 $((size / 16 < most ? size / 16 : most)) $((size / 512)) | sort -n | tail -n1
}

if [ -z "$wikipedia$books$text$pubmed" ]; then
    case $stage in
    shards) ! finished "$corpus/shards" && finished "$corpus/documents" || exit 0 ;;
    vocab) ! finished "$corpus/vocab" && finished "$corpus/shards" || exit 0 ;;
    wikipedia | books | text | pubmed | documents | bpe | tokens)
        laters=("$corpus"/{documents,shards} "$work/tfrecords/seq$PHASE1_SEQ")
        case $stage in
        wikipedia | books | text | pubmed) laters+=("$corpus/bpe" "$work/tokens") ;;
        bpe) laters=("$corpus/bpe" "$work/tokens") ;;
        tokens) laters=("$work/tokens") ;;
        esac
        for later in "${laters[@]}"; do
            ! finished "$later" || exit 0
        done
        echo "error: no source is set ; repeat with WIKIPEDIA=dump.xml.bz2, or BOOKS, TEXT or PUBMED=folder" >&2
        exit 2
        ;;
    esac
fi

case $stage in
download)
    [ -z "${wiki:-}" ] || run wikipedia --wiki "$wiki" --output "$wikipedia"
    [ -z "${pg19:-}" ] || run pg19 --output "$books"
    [ -z "${pubmed_year:-}" ] || run pubmed --year "$pubmed_year" --output "$pubmed"
    for name in squad1 squad2; do
        [[ " ${SQUAD_TRAIN:-} ${SQUAD_DEV:-} " != *" $name "* || -e $name ]] ||
            run "$name" --output "$work/download/$name"
    done
    ;;
wikipedia | books | text | pubmed) [ -z "${!stage}" ] || run --source "${!stage}" --output "$corpus/$stage" ;;
documents) run --source "${texts[@]}" --output "$corpus/documents" ;;
shards) run --source "$corpus/documents" --output "$corpus/shards" --shards "${SHARDS:-$(shard_count)}" ;;
vocab)
    vocabulary=(--vocab "$VOCAB")
    [ "$VOCAB" != train ] || vocabulary=(--size "$VOCAB_SIZE")
    run --source "$corpus/shards" --output "$corpus/vocab" "${vocabulary[@]}" ${LOWER_CASE:+--lower_case "$LOWER_CASE"}
    ;;
tfrecords)
    for length in "$PHASE1_SEQ" "$PHASE2_SEQ"; do
        records=$work/tfrecords/seq$length
        finished "$corpus/shards" || ! finished "$records" || continue # they were copied here without their corpus
        run --source "$corpus/shards" --vocab "$corpus/vocab/vocab.txt" --output "$records" \
            --max_seq_length "$length" ${LOWER_CASE:+--lower_case "$LOWER_CASE"} ${RECORDS:+--kind "$RECORDS"} \
            ${DUPE_FACTOR:+--dupe_factor "$DUPE_FACTOR"} ${MASKED_LM_PROB:+--masked_lm_prob "$MASKED_LM_PROB"}
    done
    ;;
bpe)
    vocabulary=(--import "$BPE")
    [ "$BPE" != train ] || vocabulary=(--source "${texts[@]}" --size "$BPE_SIZE" ${HELDOUT:+--heldout "$HELDOUT"})
    run --output "$corpus/bpe" "${vocabulary[@]}"
    ;;
tokens) run --source "${texts[@]}" --tokenizer "$corpus/bpe" --output "$work/tokens" \
    ${HELDOUT:+--heldout "$HELDOUT"} ;;
verify | stats)
    folders=("$corpus" "$work/tfrecords")
    ! finished "$work/tokens" || folders+=("$work/tokens")
    run "${folders[@]}"
    ;;
esac
