// collopt %s --allow-unregistered-dialect
// An operation of no known dialect, allowed, has no form in .coll.
builtin.module {
  "foo.bar"() : () -> ()
}
