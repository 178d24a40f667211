# Sourced after tap.sh by tests that run something as another user: what he needs must lie where he can
# reach it, and a tree or a build folder may lie under /root.
#
#   reach UID     sets $REACH_BIN, the programs, and $REACH_SO, the SPANK plugin: those of the build
#                 folder or, where UID cannot get there, a copy in this test's folder, which is opened
#                 to be passed through
reach() {
    local as=(setpriv --reuid="$1" --regid="$1" --clear-groups) build=${TERN_BUILD:-$ROOT/build}
    chmod a+x "$WORK"
    REACH_BIN=$BIN REACH_SO=$build/plugins/tern_spank.so
    "${as[@]}" test -x "$BIN/tern" -a -x "$BIN/tern-run" 2>/dev/null && return
    mkdir -p "$WORK/reach/plugins"
    cp -r "$BIN" "$WORK/reach/bin" && cp "$build"/plugins/*.so "$WORK/reach/plugins/"
    chmod -R a+rX "$WORK/reach"
    REACH_BIN=$WORK/reach/bin REACH_SO=$WORK/reach/plugins/tern_spank.so
}
