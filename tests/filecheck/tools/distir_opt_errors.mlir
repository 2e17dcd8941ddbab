// User mistakes end in a message on stderr and exit status 1, without a traceback.
// RUN: not distir-opt %s 2>&1 | filecheck %s
// RUN: not distir-opt %s.missing 2>&1 | filecheck %s --check-prefix=FILE
// RUN: not distir-opt %s --split-input-fiel 2>&1 | filecheck %s --check-prefix=USAGE
// RUN: not distir-opt %s -p nonsense 2>&1 | filecheck %s --check-prefix=PASS
// RUN: not distir-opt %s -p ilp-shart 2>&1 | filecheck %s --check-prefix=NEAR
// RUN: not distir-opt %s -p 'ilp-shard{mash=1}' 2>&1 | filecheck %s --check-prefix=NEAR-OPTION
// RUN: not distir-opt %s -p 'project-to-rank' 2>&1 | filecheck %s --check-prefix=OPTION
// RUN: not distir-opt %s -p 'project-to-rank{rank=9}' --disable-verify 2>&1 | filecheck %s --check-prefix=RANK
// RUN: not distir-opt %s -p 'project-to-rank{rank=' 2>&1 | filecheck %s --check-prefix=SPEC

// CHECK-NOT: Traceback
// CHECK: error: no function @f in the module
// CHECK-NEXT: in: "dist.call"() <{callee = @f, on = array<i64: 0>}> : () -> ()
// FILE: .missing: No such file or directory
// USAGE: error: unrecognized arguments: --split-input-fiel (did you mean --split-input-file?); see distir-opt --help
// PASS: error: -p 'nonsense': unknown pass nonsense: distir-opt --help lists the passes
// NEAR: error: -p 'ilp-shart': unknown pass ilp-shart: did you mean ilp-shard? distir-opt --help lists the passes
// NEAR-OPTION: ilp-shard has no option mash: expected {{.*}}(did you mean mesh?)
// OPTION: requires argument "rank"
// RANK: error: rank 9 is outside the program's devices 0..0
// SPEC: Error parsing pass pipeline specification
func.func @main() {
  dist.call @f() on [0] : () -> ()
  func.return
}
