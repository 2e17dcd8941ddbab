// RUN: distir-opt %s -p ring-attention | filecheck %s

// Keys that something else needs too are gathered for it; those that are gathered in another dim stay so.

// CHECK-LABEL: func.func @main
// CHECK-NEXT: [[K:%.*]] = dist.allgather %k dim 0 over "cp"
// CHECK-NEXT: [[W:%.*]] = dist.allgather %w dim 1 over "cp"
// CHECK-NEXT: dist.exchange %k
// CHECK-NEXT: dist.exchange %v
// CHECK:      "attention.forward"(%q, %w, [[W]])
// CHECK-NEXT: func.return {{%.*}}, {{%.*}}, [[K]]

builtin.module attributes {dist.devices = 2 : i64, dist.axes = #dist.axes<["cp" = 2]>} {
dist.mesh @mesh = <["cp" = 2]>
func.func @main(%q: tensor<4x8xf32, #dist.on<0:2>>, %k: tensor<4x8xf32, #dist.on<0:2>>, %v: tensor<4x8xf32, #dist.on<0:2>>, %w: tensor<4x8xf32, #dist.on<0:2>>) -> (tensor<4x8xf32, #dist.on<0:2>>, tensor<4x16xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>) {
  %K = dist.allgather %k dim 0 over "cp" : (tensor<4x8xf32, #dist.on<0:2>>) -> tensor<8x8xf32, #dist.on<0:2>>
  %V = dist.allgather %v dim 0 over "cp" : (tensor<4x8xf32, #dist.on<0:2>>) -> tensor<8x8xf32, #dist.on<0:2>>
  %W = dist.allgather %w dim 1 over "cp" : (tensor<4x8xf32, #dist.on<0:2>>) -> tensor<4x16xf32, #dist.on<0:2>>
  %o, %s = "attention.forward"(%q, %K, %V) <{scale = 0.5 : f64}> : (tensor<4x8xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>) -> (tensor<4x8xf32, #dist.on<0:2>>, tensor<4xf32, #dist.on<0:2>>)
  %p, %t = "attention.forward"(%q, %w, %W) <{scale = 0.5 : f64}> : (tensor<4x8xf32, #dist.on<0:2>>, tensor<4x8xf32, #dist.on<0:2>>, tensor<4x16xf32, #dist.on<0:2>>) -> (tensor<4x16xf32, #dist.on<0:2>>, tensor<4xf32, #dist.on<0:2>>)
  func.return %o, %p, %K : tensor<4x8xf32, #dist.on<0:2>>, tensor<4x16xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>
}
}
