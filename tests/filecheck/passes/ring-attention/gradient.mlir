// RUN: distir-opt %s -p ring-attention | filecheck %s

// Gradients by keys and values go around with the keys, one step more; the one by queries is added up.

// CHECK-LABEL: func.func @main
// CHECK-NEXT: [[k:%\S+]] = dist.exchange %k dim 0 from [4, 0] over "cp"
// CHECK-NEXT: [[v:%\S+]] = dist.exchange %v dim 0 from [4, 0] over "cp"
// CHECK-NEXT: [[dq:%\S+]], [[dk:%\S+]], [[dv:%\S+]] = "attention.backward"(%g, %o, %s, %q, %k, %v)
// CHECK-NEXT: [[dk1:%\S+]] = dist.exchange [[dk]] dim 0 from [4, 0] over "cp"
// CHECK-NEXT: [[dv1:%\S+]] = dist.exchange [[dv]] dim 0 from [4, 0] over "cp"
// CHECK-NEXT: [[eq:%\S+]], [[ek:%\S+]], [[ev:%\S+]] = "attention.backward"(%g, %o, %s, %q, [[k]], [[v]])
// CHECK-NEXT: [[q:%\S+]] = dist.accumulate sum [[dq]], [[eq]]
// CHECK-NEXT: [[dk2:%\S+]] = dist.accumulate sum [[dk1]], [[ek]]
// CHECK-NEXT: [[dv2:%\S+]] = dist.accumulate sum [[dv1]], [[ev]]
// CHECK-NEXT: [[dk3:%\S+]] = dist.exchange [[dk2]] dim 0 from [4, 0] over "cp"
// CHECK-NEXT: [[dv3:%\S+]] = dist.exchange [[dv2]] dim 0 from [4, 0] over "cp"
// CHECK-NEXT: func.return [[q]], [[dk3]], [[dv3]]

builtin.module attributes {dist.devices = 2 : i64, dist.axes = #dist.axes<["cp" = 2]>} {
dist.mesh @mesh = <["cp" = 2]>
func.func @main(%q: tensor<4x8xf32, #dist.on<0:2>>, %k: tensor<4x8xf32, #dist.on<0:2>>, %v: tensor<4x8xf32, #dist.on<0:2>>, %g: tensor<4x8xf32, #dist.on<0:2>>, %o: tensor<4x8xf32, #dist.on<0:2>>, %s: tensor<4xf32, #dist.on<0:2>>) -> (tensor<4x8xf32, #dist.on<0:2>>, tensor<4x8xf32, #dist.on<0:2>>, tensor<4x8xf32, #dist.on<0:2>>) {
  %K = dist.allgather %k dim 0 over "cp" : (tensor<4x8xf32, #dist.on<0:2>>) -> tensor<8x8xf32, #dist.on<0:2>>
  %V = dist.allgather %v dim 0 over "cp" : (tensor<4x8xf32, #dist.on<0:2>>) -> tensor<8x8xf32, #dist.on<0:2>>
  %dq, %dk, %dv = "attention.backward"(%g, %o, %s, %q, %K, %V) <{scale = 0.5 : f64}> : (tensor<4x8xf32, #dist.on<0:2>>, tensor<4x8xf32, #dist.on<0:2>>, tensor<4xf32, #dist.on<0:2>>, tensor<4x8xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>) -> (tensor<4x8xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>, tensor<8x8xf32, #dist.on<0:2>>)
  %a = dist.reducescatter sum %dk dim 0 over "cp" : (tensor<8x8xf32, #dist.on<0:2>>) -> tensor<4x8xf32, #dist.on<0:2>>
  %b = dist.reducescatter sum %dv dim 0 over "cp" : (tensor<8x8xf32, #dist.on<0:2>>) -> tensor<4x8xf32, #dist.on<0:2>>
  func.return %dq, %a, %b : tensor<4x8xf32, #dist.on<0:2>>, tensor<4x8xf32, #dist.on<0:2>>, tensor<4x8xf32, #dist.on<0:2>>
}
}
