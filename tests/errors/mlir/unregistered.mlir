// collopt %s
// An operation of no dialect that is known.
builtin.module {
  "foo.bar"() : () -> ()
}
