// RUN: distir-opt %s | distir-opt | filecheck %s
// RUN: distir-opt %s --print-op-generic | distir-opt | filecheck %s

// CHECK:      sdy.mesh @mesh = <["dp"=2, "tp"=4]>
sdy.mesh @mesh = <["dp"=2, "tp"=4]>
// CHECK-NEXT: sdy.mesh @reversed = <["x"=3], device_ids=[2, 1, 0]>
sdy.mesh @reversed = <["x"=3], device_ids=[2, 1, 0]>

// CHECK-NEXT: func.func @main(%x: tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"dp"}, {"tp", ?}p1], replicated={"x":(1)2}, unreduced={"y"}>},
// CHECK-SAME: %w: tensor<8x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}, {}]>})
func.func @main(%x: tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"dp"}, {"tp", ?}p1], replicated={"x":(1)2}, unreduced={"y"}>},
                %w: tensor<8x6xf32> {sdy.sharding = #sdy.sharding<@mesh, [{?}, {}]>}) -> tensor<4x6xf32> {
  // CHECK: sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"dp"}, {}], unreduced={"tp"}>]>, sdy.sharding_rule = #sdy.op_sharding_rule<([i, j], [j, k])->([i, k]) {i=4, j=8, k=6} reduction={j}>
  %h = "onnx.MatMul"(%x, %w) {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{"dp"}, {}], unreduced={"tp"}>]>, sdy.sharding_rule = #sdy.op_sharding_rule<([i, j], [j, k])->([i, k]) {i=4, j=8, k=6} reduction={j}>} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
  // CHECK: #sdy.op_sharding_rule<([i, jz_1], [k, l, m, n, o, p, q, r, s, t, u, v, w, x, y])->([*, zz_2]) {i=1, j=1, k=1, l=1, m=1, n=1, o=1, p=1, q=1, r=1, s=1, t=1, u=1, v=1, w=1, x=1, y=1, z=1, z_1=1, z_2=1} need_replication={i} permutation={j, z} blocked_propagation={z_1}, custom>
  func.return {rule = #sdy.op_sharding_rule<([i, jz_1], [k, l, m, n, o, p, q, r, s, t, u, v, w, x, y])->([*, zz_2]) {i=1, j=1, k=1, l=1, m=1, n=1, o=1, p=1, q=1, r=1, s=1, t=1, u=1, v=1, w=1, x=1, y=1, z=1, z_1=1, z_2=1} need_replication={i} permutation={j, z} blocked_propagation={z_1}, custom>} %h : tensor<4x6xf32>
}
