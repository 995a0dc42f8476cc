#!/bin/sh
# haul work events --serve 2 -- ./handler.sh
# Without a JSON parser only the id is read: it always comes first.
while IFS= read -r line; do
  case "$line" in '{"id":'*) ;; *) continue ;; esac
  id=${line#'{"id":'}
  id=${id%%,*}
  if printf '%s\n' "$line" >> "${HAUL_SEEN:-/dev/null}"; then
    printf '{"id":%s}\n' "$id"
  else
    printf '{"id":%s,"retry":"could not write","delay":5}\n' "$id"
  fi
done
