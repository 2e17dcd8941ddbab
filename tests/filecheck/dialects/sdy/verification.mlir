// RUN: DISTIR_DIAGNOSTICS

// CHECK: expected factors (i to z, z_1, z_2, ...), got hi
func.func @main() {
  func.return {rule = #sdy.op_sharding_rule<([hi])->([i]) {i=4}>}
}

// -----

// CHECK: expected factors 0 to 1 in the mappings, got [0]
func.func @main() {
  func.return {rule = #sdy.op_sharding_rule<([i])->([i]) {i=4, j=2}>}
}

// -----

// CHECK: a tensor carries a factor twice
func.func @main() {
  func.return {rule = #sdy.op_sharding_rule<([i, i])->([i]) {i=4}>}
}

// -----

// CHECK: a factor can be only one of reduction, need_replication and permutation
func.func @main() {
  func.return {rule = #sdy.op_sharding_rule<([i])->([]) {i=4} reduction={i} permutation={i}>}
}
